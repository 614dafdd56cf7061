"""A shutdown as one self-contained page: to send to somebody, to print, to keep with a ticket."""
