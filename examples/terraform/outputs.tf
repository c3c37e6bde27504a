output "plan" {
  description = "Which plan this is, what it promises and what it costs."
  value       = local.plan
}

output "machines" {
  description = "The machine of each rental."
  value       = { for key, machine in terraform_data.rental : key => machine.id }
}

output "commands" {
  description = "How to start each replica; empty where vLLM cannot."
  value       = { for key, replica in local.replicas : key => replica.command }
}

output "usd_per_hour" {
  description = "Price of each machine."
  value       = { for key, figures in data.terraform_remote_state.plan.outputs.rental_figures : key => figures.price_usd_per_hour }
}
