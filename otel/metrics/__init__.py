"""What is counted and measured over all shutdowns: a projection of the journal, and its exposition."""
