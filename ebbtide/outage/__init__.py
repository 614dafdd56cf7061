"""The controller that brings nodes back into service which went down without a graceful shutdown."""
