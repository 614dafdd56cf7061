"""The system on Trio: one inbox, one sequencer, effects behind their barriers. Nothing is decided here."""
