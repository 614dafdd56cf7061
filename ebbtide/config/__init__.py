"""Configuration: bounded reading of YAML, the kubelet's rules, and where each value came from."""

from ebbtide.config.loading import (
    DEFAULT_PATH,
    ConfigError,
    Loaded,
    configuration_from_values,
    configuration_values,
    default_paths,
    load,
    load_named,
    parse,
)

__all__ = [
    "DEFAULT_PATH",
    "ConfigError",
    "Loaded",
    "configuration_from_values",
    "configuration_values",
    "default_paths",
    "load",
    "load_named",
    "parse",
]
