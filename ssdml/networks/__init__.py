"""Networks, batches and training steps for metric learning."""
