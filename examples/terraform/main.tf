# Carries out the current plan of a sutler deployment: one resource per machine, per replica and per route.
# The plan is read as remote state, so no provider plugin is needed for it.

terraform {
  required_version = ">= 1.4"
}

# Terraform's http backend speaks HTTP Basic only: any user name, the key as password. Without var.key both come from
# TF_HTTP_USERNAME and TF_HTTP_PASSWORD, which keeps the key out of Terraform's own state and plan files.
data "terraform_remote_state" "plan" {
  backend = "http"

  config = {
    address  = "${trimsuffix(var.url, "/")}/v1/deployments/${var.deployment}/terraform/state"
    username = var.key == null ? null : "sutler"
    password = var.key
  }

  lifecycle {
    postcondition {
      condition     = self.outputs.plan.cost_usd_per_hour <= coalesce(var.most_usd_per_hour, self.outputs.plan.cost_usd_per_hour)
      error_message = "The plan costs ${self.outputs.plan.cost_usd_per_hour} USD per hour: raise most_usd_per_hour or lower the deployment's budget."
    }
  }
}

locals {
  plan     = data.terraform_remote_state.plan.outputs.plan
  rentals  = data.terraform_remote_state.plan.outputs.rentals
  replicas = data.terraform_remote_state.plan.outputs.replicas
  routing  = data.terraform_remote_state.plan.outputs.routing
}

# Stands for a machine. A cloud's own resource goes here, such as a pod of RunPod's provider or an instance of Vast's,
# made from each.value.offer_id, .gpu, .gpus and .storage_gb; the key names one machine for as long as it is rented.
# What is bid for an interruptible one is rental_figures[each.key].price_usd_per_hour.
resource "terraform_data" "rental" {
  for_each = local.rentals
  input    = each.value
}

# Stands for a running engine: each.value.command and .engine_env on the machines of each.value.rentals.
# It is made after its machines and removed before them.
resource "terraform_data" "replica" {
  for_each = local.replicas
  input    = merge(each.value, { machine_ids = [for key in each.value.rentals : terraform_data.rental[key].id] })
}

# Stands for a rule of the router: the share of a workload's requests by replica.
resource "terraform_data" "route" {
  for_each = local.routing
  input    = merge(each.value, { replica_ids = { for key, share in each.value.fractions : key => terraform_data.replica[key].id } })
}

# Tells sutler, once all of the above is done, that this revision is carried out. Without that its machines look, once
# they are rented, like offers that have left the market. Needs curl and, where the service wants one, a key with the
# scope plan in TF_HTTP_PASSWORD; curl reads it from its standard input, so that process lists do not show it.
resource "terraform_data" "acknowledged" {
  count            = var.acknowledge ? 1 : 0
  triggers_replace = [local.plan.deployment, local.plan.revision]
  depends_on       = [terraform_data.rental, terraform_data.replica, terraform_data.route]

  provisioner "local-exec" {
    on_failure = continue # what is rented stays

    environment = {
      ADDRESS  = "${trimsuffix(var.url, "/")}/v1/deployments/${var.deployment}/holdings/ack"
      REVISION = local.plan.revision
    }

    command = <<-EOT
      if [ -n "$TF_HTTP_PASSWORD" ]; then printf 'user = "sutler:%s"\n' "$TF_HTTP_PASSWORD"; fi |
        curl --silent --show-error --fail --output /dev/null --config - --request POST \
          --header 'Content-Type: application/json' --data "{\"revision\": $REVISION}" "$ADDRESS" ||
        { echo "not acknowledged: sutler deployments ack NAME --revision $REVISION"; exit 1; }
    EOT
  }
}
