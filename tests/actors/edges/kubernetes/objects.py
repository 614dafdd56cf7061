"""Random pod objects as the API server sends them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

names = st.text("ab-01", min_size=1, max_size=8)
#: Values that other writers may put anywhere; all are ignored.
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
times = st.integers(0, 59).map("2026-01-01T00:00:{:02}Z".format)
states = st.one_of(
    st.fixed_dictionaries({"waiting": st.fixed_dictionaries({"reason": st.text(max_size=10)})}),
    st.fixed_dictionaries({"running": st.fixed_dictionaries({"startedAt": times})}),
    st.fixed_dictionaries(
        {"terminated": st.fixed_dictionaries({"exitCode": st.integers(0, 255), "startedAt": times})}
    ),
)
statuses = st.fixed_dictionaries(
    {"name": names, "image": st.text(max_size=10)}, optional={"state": states, "lastState": states}
)
containers = st.fixed_dictionaries(
    {"name": names, "env": anything}, optional={"restartPolicy": st.sampled_from(["Always", None])}
)
tolerations = st.fixed_dictionaries(
    {},
    optional={
        "key": names,
        "operator": st.sampled_from(["Exists", "Equal"]),
        "effect": st.sampled_from(["NoSchedule", "NoExecute", ""]),
    },
)
volumes = st.builds(
    lambda name, kind, what: {"name": name, kind: what},
    names,
    st.sampled_from(["configMap", "secret", "hostPath", "persistentVolumeClaim", "csi", "nfs", "emptyDir"]),
    anything,
)
metadata = st.fixed_dictionaries(
    {"name": names, "namespace": names, "uid": names},
    optional={
        "resourceVersion": st.integers(1, 10**12).map(str),
        "annotations": st.none() | st.dictionaries(st.text(max_size=10), st.text(max_size=30), max_size=4),
        "labels": st.none() | st.dictionaries(names, names, max_size=3),
        "deletionTimestamp": times,
        "managedFields": anything,
    },
)
specs = st.fixed_dictionaries(
    {"containers": st.lists(containers, max_size=3)},
    optional={
        "initContainers": st.none() | st.lists(containers, max_size=3),
        "tolerations": st.none() | st.lists(tolerations, max_size=3),
        "volumes": st.none() | st.lists(volumes, max_size=3),
        "priority": st.none() | st.integers(-(2**31), 2**31 - 1),
        "terminationGracePeriodSeconds": st.none() | st.integers(0, 10**6),
        "hostNetwork": st.booleans(),
        "affinity": anything,
    },
)
pods: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"metadata": metadata, "spec": specs},
    optional={
        "status": st.fixed_dictionaries(
            {"phase": st.sampled_from(["Pending", "Running", "Succeeded", "Failed"])},
            optional={"containerStatuses": st.lists(statuses, max_size=3), "qosClass": anything},
        )
    },
)
