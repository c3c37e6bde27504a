"""What a deployment has rented: reported by whoever carries its plans out, compared with the plan that holds."""
