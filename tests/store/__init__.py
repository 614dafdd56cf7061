"""The shipper of closed segments, and real stores."""
