"""A shutdown as one self-contained page: to send, to print, to keep with a ticket."""
