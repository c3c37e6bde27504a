variable "url" {
  description = "Where sutler serves."
  type        = string
  default     = "http://127.0.0.1:8400"
}

variable "deployment" {
  description = "Name of the deployment."
  type        = string
}

variable "key" {
  description = "API key with the scope read, to read the plan with. Null: TF_HTTP_USERNAME and TF_HTTP_PASSWORD, or none on loopback."
  type        = string
  default     = null
  sensitive   = true
}

variable "most_usd_per_hour" {
  description = "Refuse plans that cost more. Null: no limit beside the deployment's own."
  type        = number
  default     = null
}

variable "acknowledge" {
  description = "Tell sutler that a revision is carried out once it is applied; needs curl and TF_HTTP_PASSWORD."
  type        = bool
  default     = true
}
