"""Finds parameters of a Kubernetes training job that are valid alone but not together.

A parameter that the template lacks counts as unset. Each message says what is wrong and what to change.
"""

import re
from collections.abc import Iterator

from job_parameters import MAX_NAME_LENGTH, Parameters, amount, minor, show

# Environment variables that the template sets for trainers, and the parameters that they come from.
TEMPLATE_VARIABLES = {
    "TF_CONFIG": "worker_replicas",
    "MODEL_DIR": "model_checkpoint_dir",
    "DATA_DIR": "data_dir",
    "NUM_TRAIN_EPOCH": "epochs",
    "BATCH_SIZE": "batch_size",
    "LOCKSTEP_DEVICE": "num_gpus_per_worker",
    "LOCKSTEP_RANKS_PER_WORKER": "ranks_per_worker",
    "LOCKSTEP_RENDEZVOUS_TIMEOUT": "rendezvous_timeout",
    "LOCKSTEP_LEAVE_TIMEOUT": "grace_period",
    "LOCKSTEP_JOB_NAME": "name",
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
OWN_VARIABLES = re.compile(r"LOCKSTEP_(JOB_ID|LAUNCH_ID|GENERATION|CONTROL_FD)$|(PMIX|PMI|OMPI_COMM|SLURM)_")
RESERVED_PATH = re.compile(r"/(tmp|dev|dev/shm)$|/(proc|sys|usr|bin|sbin|lib|lib64|etc)(/|$)")
SWITCHES = (
    "deploy",
    "create_pvc_checkpoint",
    "create_volume_inspector",
    "create_pvc_data",
    "fetch_data",
    "tensorboard",
)


def contradictions(given: Parameters) -> list[str]:
    return [*of_switches(given), *of_volumes(given), *of_names(given), *of_program(given), *of_sizes(given)]


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
        if sum(bool(get(switch)) for switch in ("deploy", "create_volume_inspector", "tensorboard")) > 1:
            yield (
                "checkpoint_access_mode ReadWriteOncePod allows one pod to mount the volume, but more than one of "
                "deploy, create_volume_inspector and tensorboard is True: set all but one to False"
            )
        if minor(get("kubernetes_version", "1.99")) < 27:
            yield "checkpoint_access_mode ReadWriteOncePod needs Kubernetes 1.27 or later: use ReadWriteOnce"
    for switch in ("fetch_data", "create_pvc_data"):
        if get(switch) and not data:
            yield f"{switch} is True but data_pvc_name is empty: set it to the name of the claim for the data"
    if data and not get("data_dir", "/"):
        yield "data_pvc_name is set but data_dir is empty: set it to the path where workers mount the data"
    if claim and claim == data:
        yield (
            f"checkpoint_pvc_name and data_pvc_name are both {show(claim)}, but all workers mount the data and only "
            "the chief mounts the checkpoints: use two claims"
        )


def of_names(given: Parameters) -> Iterator[str]:
    get = given.get
    name = get("name", "")
    length = len(f"{name}-volume-inspector")
    if length > MAX_NAME_LENGTH:
        yield (
            f"name is {show(name)}, which leads to object names of {length} characters, more than {MAX_NAME_LENGTH}: "
            f"shorten it by {length - MAX_NAME_LENGTH}"
        )
    for variable in get("env", {}):
        if TEMPLATE_VARIABLES.get(variable) in given:
            yield f"env has {variable}, which the template sets: use {TEMPLATE_VARIABLES[variable]} instead"
        if OWN_VARIABLES.match(variable):
            yield f"env has {variable}, which launchers set for their trainers: leave it out"
    checkpoints, data = get("model_checkpoint_dir"), get("data_dir")
    for parameter, path in (("model_checkpoint_dir", checkpoints), ("data_dir", data)):
        if path and RESERVED_PATH.match(path):
            yield f"{parameter} is {show(path)}, which containers use for other files: use another path"
    if get("data_pvc_name") and checkpoints and data and f"{checkpoints}/".startswith(f"{data}/"):
        yield f"model_checkpoint_dir is {show(checkpoints)}, within data_dir, which is read-only: use another path"


def of_program(given: Parameters) -> Iterator[str]:
    script, programs, checkpoints = given.get("script"), given.get("programs"), given.get("model_checkpoint_dir")
    arguments: list[str] = given.get("cmdline_args", [])
    if script is None or programs is None:
        return
    program = script.removesuffix(".py")
    if program not in programs:
        yield (
            f"script is {show(script)}, but the image has {', '.join(programs)}: use one of them, or add "
            f"{show(program)} to programs if your image has it (docs/kubernetes.md explains how to add it)"
        )
    if program == "lockstep" and arguments[:1] != ["train"]:
        yield 'script is "lockstep", which needs cmdline_args such as ["train", "--model", "/data/model.keras"]'
    for option, value in zip(arguments, [*arguments[1:], ""]):
        if option.split("=")[0] != "--model-dir":
            continue
        model_dir = option.removeprefix("--model-dir=") if "=" in option else value
        if checkpoints and not f"{model_dir}/".startswith(f"{checkpoints}/"):
            yield (
                f"cmdline_args has --model-dir {model_dir}, which is not writable: use {checkpoints} or a path "
                "below it, or omit the option"
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
    if get("min_workers", 0) > workers:
        yield f"min_workers is {get('min_workers')}, more than worker_replicas, {workers}: lower it, or set it to 0"
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
