"""Tests that start processes beside gRPC, whose own handlers at a fork would hang the child."""

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
