"""Re-execution: feed a journal's facts to the same `System.step` and compare every decision."""
