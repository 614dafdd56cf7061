"""What several edges need of Linux: processes and their ends, whole trees, the bus, changes of files."""
