"""Configuration: bounded reading of YAML, the kubelet's rules, and where each value came from."""

from ebbtide.config.loading import (
    DEFAULT_PATH,
    ConfigError,
    Loaded,
    Options,
    default_paths,
    load,
    parse,
)

__all__ = ["DEFAULT_PATH", "ConfigError", "Loaded", "Options", "default_paths", "load", "parse"]
