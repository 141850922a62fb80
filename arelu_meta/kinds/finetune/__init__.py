"""Fine-tune anyone's network on a target set."""
