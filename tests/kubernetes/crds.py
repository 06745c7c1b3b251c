"""The fields of the custom resources that the template and the chart create, since their controllers are not here.

JobSet v1alpha2, Kubeflow's TrainJob and TrainingRuntime v1alpha1, TFJob v1 and MPIJob v2beta1, and OpenShift's Template
v1. Fields that are set by controllers only are left out. Jobs and pods within them are returned as objects of their own,
for Kubernetes' own schemas.
"""

from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]


class Embedded:
    """A Job or a pod within a resource."""

    def __init__(self, api: str, kind: str) -> None:
        self.api, self.kind = api, kind


class OneOf:
    def __init__(self, *words: str) -> None:
        self.words = words


JOB = Embedded("batch/v1", "Job")
POD = Embedded("v1", "Pod")
ANYTHING = object()
SCALARS = {"string": str, "integer": int, "boolean": bool}

# A field's name ends with ! if the field is required; {"*": type} is a map. Lists have one type of items.
RUN_POLICY = {
    "activeDeadlineSeconds": "integer",
    "backoffLimit": "integer",
    "cleanPodPolicy": OneOf("None", "Running", "All"),
    "managedBy": "string",
    "schedulingPolicy": {
        "minAvailable": "integer",
        "minResources": {"*": "string"},
        "priorityClass": "string",
        "queue": "string",
        "scheduleTimeoutSeconds": "integer",
    },
    "suspend": "boolean",
    "ttlSecondsAfterFinished": "integer",
}
REPLICA_SPEC = {
    "replicas": "integer",
    "restartPolicy": OneOf("Always", "OnFailure", "Never", "ExitCode"),
    "template": POD,
}
JOB_SET_SPEC = {
    "coordinator": {"jobIndex": "integer", "podIndex": "integer", "replicatedJob!": "string"},
    "failurePolicy": {
        "maxRestarts": "integer",
        "restartStrategy": OneOf("Recreate", "BlockingRecreate", "InPlaceRestart"),
    },
    "managedBy": "string",
    "network": {"enableDNSHostnames": "boolean", "publishNotReadyAddresses": "boolean", "subdomain": "string"},
    "replicatedJobs": [
        {
            "dependsOn": [{"name!": "string", "status!": OneOf("Ready", "Complete")}],
            "groupName": "string",
            "name!": "string",
            "replicas": "integer",
            "template!": JOB,
        }
    ],
    "startupPolicy": {"startupPolicyOrder!": OneOf("AnyOrder", "InOrder")},
    "successPolicy": {"operator!": OneOf("All", "Any"), "targetReplicatedJobs": ["string"]},
    "suspend": "boolean",
    "ttlSecondsAfterFinished": "integer",
}
SPECS: dict[tuple[str, str], Any] = {
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): JOB_SET_SPEC,
    ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"): {
        "mlPolicy": {"numNodes": "integer"},
        "template": {"metadata": {"labels": {"*": "string"}, "annotations": {"*": "string"}}, "spec": JOB_SET_SPEC},
    },
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): {
        "activeDeadlineSeconds": "integer",
        "managedBy": "string",
        "runtimeRef!": {
            "apiGroup": "string",
            "kind": OneOf("TrainingRuntime", "ClusterTrainingRuntime"),
            "name!": "string",
        },
        "suspend": "boolean",
        "trainer": {
            "args": ["string"],
            "command": ["string"],
            "env": [{"name!": "string", "value": "string"}],
            "image": "string",
            "numNodes": "integer",
            "numProcPerNode": "integer",
        },
    },
    ("kubeflow.org/v1", "TFJob"): {
        "enableDynamicWorker": "boolean",
        "runPolicy": RUN_POLICY,
        "successPolicy": OneOf("", "AllWorkers"),
        "tfReplicaSpecs!": {
            "Chief": REPLICA_SPEC,
            "Master": REPLICA_SPEC,
            "Worker": REPLICA_SPEC,
            "PS": REPLICA_SPEC,
            "Evaluator": REPLICA_SPEC,
        },
    },
    ("kubeflow.org/v2beta1", "MPIJob"): {
        "launcherCreationPolicy": OneOf("AtStartup", "WaitForWorkersReady"),
        "mpiImplementation": OneOf("OpenMPI", "Intel", "MPICH"),
        "mpiReplicaSpecs!": {"Launcher": REPLICA_SPEC, "Worker": REPLICA_SPEC},
        "runLauncherAsWorker": "boolean",
        "runPolicy": RUN_POLICY,
        "slotsPerWorker": "integer",
        "sshAuthMountPath": "string",
    },
}


OBJECT = {
    "apiVersion!": "string",
    "kind!": "string",
    "metadata!": {"name!": "string", "labels": {"*": "string"}, "annotations": {"*": "string"}},
}
OPENSHIFT = ("template.openshift.io/v1", "Template")
TEMPLATE = {
    "labels": {"*": "string"},
    "message": "string",
    "objects!": [{"*": ANYTHING}],
    "parameters": [
        {
            "name!": "string",
            "displayName": "string",
            "description": "string",
            "value": "string",
            "generate": "string",
            "from": "string",
            "required": "boolean",
        }
    ],
}


def is_custom(document: Object) -> bool:
    return (document["apiVersion"], document["kind"]) in SPECS


class Check:
    """The errors of a custom resource, and the Jobs and pods within it."""

    def __init__(self, document: Object) -> None:
        self.errors: list[str] = []
        self.embedded: list[Object] = []
        self.metadata = document["metadata"]
        kind = (document["apiVersion"], document["kind"])
        fields = OBJECT | (TEMPLATE if kind == OPENSHIFT else {"spec!": SPECS[kind]})
        self.errors.extend(self.walk(document, fields, document["kind"]))

    def walk(self, value: Any, wanted: Any, where: str) -> Iterator[str]:
        if wanted is ANYTHING:
            return
        if isinstance(wanted, str):
            if type(value) is not SCALARS[wanted]:  # isinstance(True, int) is true
                yield f"{where}: {value!r} is no {wanted}"
        elif isinstance(wanted, OneOf):
            if value not in wanted.words:
                yield f"{where}: {value!r} is not one of {', '.join(wanted.words)}"
        elif isinstance(wanted, list):
            if not isinstance(value, list):
                yield f"{where}: no list"
                return
            for index, item in enumerate(value):
                yield from self.walk(item, wanted[0], f"{where}[{index}]")
        elif not isinstance(value, dict):
            yield f"{where}: no object"
        elif isinstance(wanted, Embedded):
            metadata = {"name": self.metadata["name"]} | value.get("metadata", {})
            self.embedded.append({"apiVersion": wanted.api, "kind": wanted.kind} | value | {"metadata": metadata})
        else:
            yield from self.walk_fields(value, wanted, where)

    def walk_fields(self, value: Object, wanted: Object, where: str) -> Iterator[str]:
        required = {name[:-1] for name in wanted if name.endswith("!")}
        types = {name.removesuffix("!"): of_field for name, of_field in wanted.items()}
        for name in sorted(required - set(value)):
            yield f"{where}: {name} is missing"
        for name, item in value.items():
            if name not in types and "*" not in types:
                yield f"{where}: unknown field {name}"
            else:
                yield from self.walk(item, types.get(name, types.get("*")), f"{where}.{name}")
