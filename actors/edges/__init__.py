"""The only code that meets the outside: an edge carries out orders and reports facts. The core decides."""
