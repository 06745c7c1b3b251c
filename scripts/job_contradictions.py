"""Finds parameters of a Kubernetes training job that are valid alone but not together.

A parameter that the template lacks counts as unset. Each message says what is wrong and what to change.
"""

import re
from collections.abc import Iterator
from posixpath import normpath

from job_parameters import MAX_NAME_LENGTH, Parameters, amount, minor, show

# Environment variables that the template sets for trainers, and the parameters that they come from.
TEMPLATE_VARIABLES = {
    "TF_CONFIG": "worker_replicas",
    "CLUSTER_CONFIG": "worker_replicas",
    "MODEL_DIR": "model_checkpoint_dir",
    "DATA_DIR": "data_dir",
    "NUM_TRAIN_EPOCH": "epochs",
    "BATCH_SIZE": "batch_size",
    "LOCKSTEP_DEVICE": "num_gpus_per_worker",
    "LOCKSTEP_RANKS_PER_WORKER": "ranks_per_worker",
    "LOCKSTEP_RENDEZVOUS_TIMEOUT": "rendezvous_timeout",
    "LOCKSTEP_LEAVE_TIMEOUT": "grace_period",
    "LOCKSTEP_JOB_NAME": "name",
    "LOCKSTEP_STRATEGY": "ps_replicas",
    "LOCKSTEP_MIN_WORKERS": "min_workers",
    "LOCKSTEP_REJOIN_TIMEOUT": "rejoin_timeout",
    "LOCKSTEP_STATUS_PORT": "status_port",
    "LOCKSTEP_JOB_TOKEN": "job_token",
    "LOCKSTEP_JOB_TOKEN_FILE": "job_token",
    "LOCKSTEP_INSECURE": "job_token",
    # Other names of the same settings.
    "LOCKSTEP_MODEL_DIR": "model_checkpoint_dir",
    "LOCKSTEP_BACKUP_DIR": "model_checkpoint_dir",
    "LOCKSTEP_DATA_DIR": "data_dir",
    "LOCKSTEP_EPOCHS": "epochs",
    "LOCKSTEP_GLOBAL_BATCH_SIZE": "batch_size",
}
# Set by the template or by launchers, for one pod or one trainer: equal values for all would be wrong.
OWN_VARIABLES = re.compile(
    r"(LOCKSTEP_(JOB_ID|LAUNCH_ID|GENERATION|CONTROL_FD)|POD_NAME|JOB_COMPLETION_INDEX)$|(PMIX|PMI|OMPI_COMM|SLURM)_"
)
# Options with a path that must lie in a volume, and the parameter that says where the volume is mounted. What a pod
# writes elsewhere is lost with the pod.
PATH_OPTIONS = {
    "cmdline_args": dict.fromkeys(
        ("--model-dir", "--backup-dir", "--csv-log", "--tensorboard-dir"), "model_checkpoint_dir"
    ),
    "evaluator_args": {
        **dict.fromkeys(("--eval-dir", "--export-dir", "--follow-backups"), "model_checkpoint_dir"),
        "--data-dir": "data_dir",
    },
}
# Variables of the same options of the program, and the parameters. The template sets the other ones.
PATH_VARIABLES = {
    variable: volume
    for option, volume in PATH_OPTIONS["cmdline_args"].items()
    if (variable := "LOCKSTEP_" + option.removeprefix("--").replace("-", "_").upper()) not in TEMPLATE_VARIABLES
}
CLUSTER_OPTIONS = ("--job_name", "--task_index", "--ps_hosts", "--worker_hosts", "--master_hosts")  # TensorFlow 1's
# Other options that the template sets, and what to do instead.
TEMPLATE_OPTIONS = {
    "cmdline_args": {
        "--strategy": "use ps_replicas instead",
        **dict.fromkeys(CLUSTER_OPTIONS, "use worker_replicas and ps_replicas instead"),
    },
    "evaluator_args": {"--follow": "use model_checkpoint_dir instead", "--model": "leave it out"},
    "serve_args": {
        "--model": "use serve_model instead",
        "--model-name": "use name instead",
        "--rest-api-port": "leave it out",
    },
}
RESERVED_PATH = re.compile(r"/(tmp|dev|dev/shm)$|/(proc|sys|usr|bin|sbin|lib|lib64|etc|run|scripts)(/|$)")
# What surrounds a worker's index in its pod's name, after the parameter `name`. A Job shortens longer names before it
# adds a random suffix, and a worker could not find its task by its pod's name.
POD_NAMES = {"jobset": ("-worker-", "-0-"), "indexed-job": ("-worker-", "-"), "trainjob": ("-node-0-", "-")}
MAX_POD_NAME_PREFIX = 58
EQUAL_PODS = ("indexed-job", "trainjob")
KINDS_WITH_SERVERS = ("jobs", "jobset", "tfjob")
OLDEST_MINOR_OF_INDICES = 24
SWITCHES = (
    "deploy",
    "create_pvc_checkpoint",
    "create_volume_inspector",
    "create_pvc_data",
    "fetch_data",
    "tensorboard",
    "evaluator",
    "serve",
)


def contradictions(given: Parameters) -> list[str]:
    rules = (of_kind, of_servers, of_switches, of_volumes, of_names, of_program, of_options, of_sizes)
    return [sentence for rule in rules for sentence in rule(given)]


def of_kind(given: Parameters) -> Iterator[str]:
    get = given.get
    kind, name, workers = get("kind", "jobs"), get("name", ""), get("worker_replicas", 1)
    if not get("deploy"):
        return
    if kind in ("tfjob", "mpijob") and get("restart") != "OnFailure":
        yield (
            f"kind is {kind}, whose operator fails the job when a pod fails: set restart to OnFailure, so that the "
            "container is restarted"
        )
    if kind in ("jobset", *EQUAL_PODS) and minor(get("kubernetes_version", "1.99")) < OLDEST_MINOR_OF_INDICES:
        yield f"kind {kind} needs Kubernetes 1.{OLDEST_MINOR_OF_INDICES} or later: set kind to jobs"
    if kind in EQUAL_PODS and workers > 1 and get("checkpoint_access_mode") != "ReadWriteMany":
        if get("checkpoint_access_mode") == "ReadWriteOncePod" or get("affinity") != "pack":
            yield (
                f"kind is {kind}, all of whose pods mount the claim {get('checkpoint_pvc_name')}, but it is "
                f"{get('checkpoint_access_mode')}: set checkpoint_access_mode to ReadWriteMany, or kind to jobs or "
                "jobset, or affinity to pack to run all workers on the node of a ReadWriteOnce volume"
            )
    if kind in POD_NAMES:
        longest = len(name) + len(str(workers - 1).join(POD_NAMES[kind]))
        if longest > MAX_POD_NAME_PREFIX:
            yield (
                f"name is {show(name)}, which leads to names of pods that are too long for kind {kind}: shorten it by "
                f"{longest - MAX_POD_NAME_PREFIX}"
            )
    if get("queue") and kind == "jobs" and workers + get("ps_replicas", 0) > 1:
        yield (
            "queue is set and kind is jobs, but Kueue would admit each worker on its own, and some could wait for the "
            "others forever: set kind to jobset"
        )


def of_servers(given: Parameters) -> Iterator[str]:
    get = given.get
    if not get("ps_replicas"):
        return
    servers, kind = f"ps_replicas is {get('ps_replicas')}", get("kind", "jobs")
    if kind not in KINDS_WITH_SERVERS:
        yield f"{servers}, but kind {kind} has no pods for parameter servers: set kind to {' or '.join(KINDS_WITH_SERVERS)}"
    if get("num_gpus_per_worker") or get("ranks_per_worker", 0) > 1:
        yield (
            f"{servers}, but with parameter servers each worker is one trainer, on CPUs: set num_gpus_per_worker and "
            "ranks_per_worker to 0, or ps_replicas to 0"
        )
    if get("min_workers"):
        yield f"{servers}, but with parameter servers all workers are needed: set min_workers or ps_replicas to 0"
    if get("command") and re.match(r"(.*/)?python[0-9.]*$", get("command")[0]):
        yield (
            f"{servers}, but programs in Python do not use parameter servers: set ps_replicas to 0, or train the model "
            "with lockstep train"
        )


def of_switches(given: Parameters) -> Iterator[str]:
    get = given.get
    deploy, inspector = get("deploy"), get("create_volume_inspector")
    if deploy and inspector and get("checkpoint_access_mode") != "ReadWriteMany":
        yield (
            f"deploy and create_volume_inspector are both True, but the claim {get('checkpoint_pvc_name')} is "
            "ReadWriteOnce: the volume is attached to the chief's node while the job runs, and one of the two pods "
            "might stay pending; set create_volume_inspector to False, and when the job has ended, set deploy to "
            "False and create_volume_inspector to True"
        )
    if deploy and get("fetch_data"):
        yield (
            "deploy and fetch_data are both True, but workers would start before the data is complete: set deploy to "
            f"False, wait for the download (kubectl wait --for=condition=complete "
            f"job/{get('name')}-fetch-data --timeout=15m), then set fetch_data to False and deploy to True"
        )
    if get("inspect_once") and not inspector:
        yield "inspect_once is True but create_volume_inspector is False: set both to True"
    if "deploy" in given and not any(get(switch) for switch in SWITCHES):
        yield f"the template creates no objects: set one of {', '.join(SWITCHES)} to True"


def of_volumes(given: Parameters) -> Iterator[str]:
    get = given.get
    data, claim = get("data_pvc_name"), get("checkpoint_pvc_name")
    if get("checkpoint_access_mode") == "ReadWriteOncePod":
        mount = ("deploy", "create_volume_inspector", "tensorboard", "evaluator", "serve")
        if sum(bool(get(switch)) for switch in mount) > 1:
            yield (
                "checkpoint_access_mode ReadWriteOncePod allows one pod to mount the volume, but more than one of "
                f"{', '.join(mount[:-1])} and {mount[-1]} is True: set all but one to False"
            )
        if minor(get("kubernetes_version", "1.99")) < 27:
            yield "checkpoint_access_mode ReadWriteOncePod needs Kubernetes 1.27 or later: use ReadWriteOnce"
    for switch in ("fetch_data", "create_pvc_data", "evaluator"):
        if get(switch) and not data:
            yield f"{switch} is True but data_pvc_name is empty: set it to the name of the claim for the data"
    if data and not get("data_dir", "/"):
        yield "data_pvc_name is set but data_dir is empty: set it to the path where workers mount the data"
    if claim and claim == data:
        yield (
            f"checkpoint_pvc_name and data_pvc_name are both {show(claim)}, but all workers mount the data and only "
            "the chief mounts the checkpoints: use two claims"
        )


def is_within(path: str, other: str) -> bool:
    return f"{normpath(path)}/".startswith(f"{other}/")


def overlap(path: str, other: str) -> bool:
    return is_within(path, other) or is_within(other, path)


def of_names(given: Parameters) -> Iterator[str]:
    get = given.get
    name = get("name", "")
    length = len(f"{name}-volume-inspector")
    if length > MAX_NAME_LENGTH:
        yield (
            f"name is {show(name)}, which leads to object names of {length} characters, more than {MAX_NAME_LENGTH}: "
            f"shorten it by {length - MAX_NAME_LENGTH}"
        )
    for variable in get("env", {}).keys() & get("secret_env", {}).keys():
        yield f"env and secret_env both have {variable}: keep one of them"
    for parameter, variable in [(it, variable) for it in ("env", "secret_env") for variable in get(it, {})]:
        if TEMPLATE_VARIABLES.get(variable) in given:
            yield f"{parameter} has {variable}, which the template sets: use {TEMPLATE_VARIABLES[variable]} instead"
        if OWN_VARIABLES.match(variable):
            yield f"{parameter} has {variable}, which launchers set for their trainers: leave it out"
    yield from of_path_variables(given)
    checkpoints, data = get("model_checkpoint_dir"), get("data_dir")
    secrets = get("secret_volumes", {})
    paths = [("model_checkpoint_dir", checkpoints), ("data_dir", data)]
    paths += [("secret_volumes", path) for path in secrets.values()]
    for parameter, path in paths:
        if path and RESERVED_PATH.match(path):
            yield f"{parameter} is {show(path)}, which containers use for other files: use another path"
    for path in secrets.values():
        if sum(bool(other) and overlap(path, other) for _, other in paths) > 1:  # it overlaps itself
            yield f"secret_volumes mounts a Secret at {show(path)}, within or around another volume: use another path"
    if get("data_pvc_name") and checkpoints and data and is_within(checkpoints, data):
        yield f"model_checkpoint_dir is {show(checkpoints)}, within data_dir, which is read-only: use another path"


def of_path_variables(given: Parameters) -> Iterator[str]:
    get = given.get
    for variable, volume in PATH_VARIABLES.items():
        path = get("env", {}).get(variable)  # an empty variable counts as unset
        if path and get(volume) and not is_within(path, get(volume)):
            yield (
                f"env has {variable} {path}, outside of the volume at {volume}: use {get(volume)} or a path below it, "
                "or leave it out"
            )
        if variable in get("secret_env", {}):
            yield f"secret_env has {variable}, whose path must be known: set it in env, to a path in {volume}"


def of_program(given: Parameters) -> Iterator[str]:
    get = given.get
    script, programs = get("script"), get("programs")
    command: list[str] = get("command", [])
    arguments: list[str] = [*command, *get("cmdline_args", [])]
    if script is None or programs is None:
        return
    if get("script_config_map") and not get("command"):
        yield (
            "script_config_map is set but command is empty: set it to what runs one of the files, such as "
            '["python", "/scripts/train.py"]'
        )
    if command and (command[0] == "mpirun" or command[:2] == ["lockstep", "launch"]):
        yield f"command begins with {command[0]}, but workers run lockstep launch already: set it to what trainers run"
    program = "" if command else script.removesuffix(".py")
    if program and program not in programs:
        yield (
            f"script is {show(script)}, but the image has {', '.join(programs)}: use one of them, or add "
            f"{show(program)} to programs if your image has it (docs/kubernetes.md explains how to add it)"
        )
    if program == "lockstep" and arguments[:1] != ["train"]:
        yield 'script is "lockstep", which needs cmdline_args such as ["train", "--model", "/data/model.keras"]'


def values_of(option: str, arguments: list[str]) -> list[str]:
    """The values of an option, from `--option value` and `--option=value`. Programs use the last one."""
    return [
        argument.removeprefix(f"{option}=") if "=" in argument else following
        for argument, following in zip(arguments, [*arguments[1:], ""])
        if argument.split("=")[0] == option
    ]


def of_options(given: Parameters) -> Iterator[str]:
    get = given.get
    all_arguments: dict[str, list[str]] = {
        "cmdline_args": [*get("command", []), *get("cmdline_args", [])],
        "evaluator_args": get("evaluator_args", []),
        "serve_args": get("serve_args", []),
    }
    for parameter, remedies in TEMPLATE_OPTIONS.items():
        for option, remedy in remedies.items():
            if values_of(option, all_arguments[parameter]):
                yield f"{parameter} has {option}, which the template sets: {remedy}"
    for parameter, volumes in PATH_OPTIONS.items():
        for option, volume in volumes.items():
            for path in values_of(option, all_arguments[parameter]):
                if get(volume) and not is_within(path, get(volume)):
                    yield (
                        f"{parameter} has {option} {path}, outside of the volume at {volume}: use {get(volume)} or a "
                        "path below it, or omit the option"
                    )
    exported = re.fullmatch(r"export/(\w+)(/.*)?", get("serve_model", ""))
    if get("serve") and get("evaluator") and exported and not values_of("--export-dir", all_arguments["evaluator_args"]):
        exporters = values_of("--export", all_arguments["evaluator_args"])[-1:]
        if exported[1] not in ",".join(exporters).split(","):
            yield (
                f"serve_model is {get('serve_model')}, but the evaluator exports no {exported[1]}: add "
                f'"--export", "{exported[1]}" to evaluator_args'
            )
    checkpoints = get("model_checkpoint_dir")
    if not checkpoints:
        return
    served = normpath(f"{checkpoints}/{get('serve_model', '')}")
    for model_dir in values_of("--model-dir", all_arguments["cmdline_args"])[-1:]:
        if get("evaluator") and normpath(model_dir) != checkpoints:
            yield (
                f"cmdline_args has --model-dir {model_dir}, but the evaluator follows {checkpoints}: omit the option, "
                "or set evaluator to False"
            )
        if get("serve") and not is_within(served, normpath(model_dir)):
            yield (
                f"cmdline_args has --model-dir {model_dir}, but the server takes models from {served}: set serve_model "
                "to a path in that directory, relative to model_checkpoint_dir, or omit the option"
            )
    for backups in values_of("--backup-dir", all_arguments["cmdline_args"])[-1:]:
        followed = [f"{checkpoints}/backup", *values_of("--follow-backups", all_arguments["evaluator_args"])][-1]
        if get("evaluator") and normpath(backups) != normpath(followed):
            yield (
                f"cmdline_args has --backup-dir {backups}, but the evaluator follows backups in {followed}: add "
                f'"--follow-backups", "{backups}" to evaluator_args'
            )


def of_sizes(given: Parameters) -> Iterator[str]:
    get = given.get
    workers, gpus, ranks = get("worker_replicas", 1), get("num_gpus_per_worker", 0), get("ranks_per_worker", 0)
    world_size = workers * (ranks or gpus or 1)
    if get("port") is not None and get("port") == get("status_port"):
        yield f"port and status_port are both {get('port')}: use two ports"
    if gpus and ranks and ranks != gpus:
        yield (
            f"num_gpus_per_worker is {gpus} and ranks_per_worker is {ranks}, but each rank has one GPU: set "
            "ranks_per_worker to 0, or both to the same number"
        )
    if get("min_available", 0) > workers:
        yield f"min_available is {get('min_available')}, more than worker_replicas, {workers}: lower it, or set it to 0"
    if get("min_workers", 0) > workers:
        yield f"min_workers is {get('min_workers')}, more than worker_replicas, {workers}: lower it, or set it to 0"
    for toleration in get("tolerations", []):
        if toleration.get("key") in ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"):
            yield f"tolerations has {toleration['key']}, which the template sets: use unreachable_after instead"
    if get("rejoin_timeout") and not get("min_workers"):
        yield "rejoin_timeout has no effect without min_workers: set min_workers, or set rejoin_timeout to 0"
    if 0 < get("batch_size", 0) < world_size:
        yield (
            f"batch_size is {get('batch_size')}, fewer than one example for each of the {world_size} ranks: set it to "
            f"at least {world_size}"
        )
    for what in ("cpu", "memory"):
        request, limit = get(f"{what}_request", ""), get(f"{what}_limit", "")
        if limit and amount(request) > amount(limit):
            yield f"{what}_request is {request}, more than {what}_limit, {limit}: lower the request or raise the limit"
    limit, shm = get("memory_limit", ""), get("shm_size", "")
    if limit and (gpus or ranks > 1) and amount(shm) >= amount(limit):
        yield f"shm_size is {shm}, which counts as memory, but memory_limit is {limit}: raise memory_limit above it"
