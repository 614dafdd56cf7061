"""What ``ebbtide simulate`` does: reads a behaviour, runs seeds, keeps journals, shows what came of it."""
