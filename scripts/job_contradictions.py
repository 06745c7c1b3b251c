"""Parameters of a training job on Kubernetes that each may be as they are, but not together.

What a template does not have counts as not set. Each sentence says what is wrong and what to change.
"""

import re
from collections.abc import Iterator

from job_parameters import LONGEST_NAME, Parameters, amount, minor, show

# What the template sets in the environment of trainers, and which parameter says it.
OWN_VARIABLES = {
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
}
TAKEN = re.compile(r"/(tmp|dev|dev/shm)$|/(proc|sys|usr|bin|sbin|lib|lib64|etc)(/|$)")
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
            "ReadWriteOnce: the volume is the chief's while the job runs, and one of the two pods might wait for "
            "ever; set create_volume_inspector to False, and when the job is over deploy to False and "
            "create_volume_inspector to True"
        )
    if deploy and get("fetch_data"):
        yield (
            "deploy and fetch_data are both True, but workers would start before the data is there: set deploy to "
            f"False, wait until the data is there (kubectl wait --for=condition=complete "
            f"job/{get('name')}-fetch-data --timeout=15m), then set fetch_data to False and deploy to True"
        )
    if get("inspect_once") and not inspector:
        yield "inspect_once is True but create_volume_inspector is False: set that to True as well"
    if "deploy" in given and not any(get(switch) for switch in SWITCHES):
        yield f"there is nothing to make: set one of {', '.join(SWITCHES)} to True"


def of_volumes(given: Parameters) -> Iterator[str]:
    get = given.get
    data, claim = get("data_pvc_name"), get("checkpoint_pvc_name")
    if get("checkpoint_access_mode") == "ReadWriteOncePod":
        if sum(bool(get(switch)) for switch in ("deploy", "create_volume_inspector", "tensorboard")) > 1:
            yield (
                "checkpoint_access_mode ReadWriteOncePod lets one pod have the volume, but more of deploy, "
                "create_volume_inspector and tensorboard are True: leave one"
            )
        if minor(get("kubernetes_version", "1.99")) < 27:
            yield "checkpoint_access_mode ReadWriteOncePod needs Kubernetes 1.27 or later: take ReadWriteOnce"
    for switch in ("fetch_data", "create_pvc_data"):
        if get(switch) and not data:
            yield f"{switch} is True but data_pvc_name is empty: name the claim that the data goes to"
    if data and not get("data_dir", "/"):
        yield "data_pvc_name is set but data_dir is empty: say where workers mount the data"
    if claim and claim == data:
        yield (
            f"checkpoint_pvc_name and data_pvc_name are both {show(claim)}, but all workers mount the data, and "
            "checkpoints only the chief: name two claims"
        )


def of_names(given: Parameters) -> Iterator[str]:
    get = given.get
    name = get("name", "")
    longest = len(f"{name}-volume-inspector")
    if longest > LONGEST_NAME:
        yield (
            f"name is {show(name)}, which makes names of {longest} characters, and {LONGEST_NAME} is the most: "
            f"shorten it by {longest - LONGEST_NAME}"
        )
    for variable in get("env", {}):
        if OWN_VARIABLES.get(variable) in given:
            yield f"env has {variable}, which the template sets itself: say {OWN_VARIABLES[variable]} instead"
    here, data = get("model_checkpoint_dir"), get("data_dir")
    for parameter, path in (("model_checkpoint_dir", here), ("data_dir", data)):
        if path and TAKEN.match(path):
            yield f"{parameter} is {show(path)}, which pods need for something else: take another path"
    if get("data_pvc_name") and here and data and f"{here}/".startswith(f"{data}/"):
        yield f"model_checkpoint_dir is {show(here)}, within data_dir, which is read-only: take another path"


def of_program(given: Parameters) -> Iterator[str]:
    script, programs, here = given.get("script"), given.get("programs"), given.get("model_checkpoint_dir")
    arguments: list[str] = given.get("cmdline_args", [])
    if script is None or programs is None:
        return
    program = script.removesuffix(".py")
    if program not in programs:
        yield (
            f"script is {show(script)}, but the image has {', '.join(programs)}: take one of them, or add "
            f"{show(program)} to programs if your image has it (docs/kubernetes.md tells how to bring it there)"
        )
    if program == "lockstep" and arguments[:1] != ["train"]:
        yield 'script is "lockstep", which needs cmdline_args such as ["train", "--model", "/data/model.keras"]'
    for option, value in zip(arguments, [*arguments[1:], ""]):
        if option.split("=")[0] != "--model-dir":
            continue
        where = option.removeprefix("--model-dir=") if "=" in option else value
        if here and not f"{where}/".startswith(f"{here}/"):
            yield (
                f"cmdline_args has --model-dir {where}, but nothing can be written there: take {here} or a path "
                "below it, or leave it out"
            )


def of_sizes(given: Parameters) -> Iterator[str]:
    get = given.get
    workers, gpus, ranks = get("worker_replicas", 1), get("num_gpus_per_worker", 0), get("ranks_per_worker", 0)
    trainers = workers * (ranks or gpus or 1)
    if get("port") is not None and get("port") == get("status_port"):
        yield f"port and status_port are both {get('port')}: take two ports"
    if gpus and ranks and ranks != gpus:
        yield (
            f"num_gpus_per_worker is {gpus} and ranks_per_worker is {ranks}, but each rank has one GPU: set "
            "ranks_per_worker to 0, or both to the same number"
        )
    if get("min_workers", 0) > workers:
        yield f"min_workers is {get('min_workers')}, more than worker_replicas, {workers}: lower it, or set it to 0"
    if get("rejoin_timeout") and not get("min_workers"):
        yield "rejoin_timeout has no effect without min_workers: set that too, or rejoin_timeout to 0"
    if 0 < get("batch_size", 0) < trainers:
        yield (
            f"batch_size is {get('batch_size')}, which all {trainers} trainers together share in a step: set it to "
            f"{trainers} at the least"
        )
    for what in ("cpu", "memory"):
        request, limit = get(f"{what}_request", ""), get(f"{what}_limit", "")
        if limit and amount(request) > amount(limit):
            yield f"{what}_request is {request}, more than {what}_limit, {limit}: lower it, or raise the limit"
    limit, shm = get("memory_limit", ""), get("shm_size", "")
    if limit and (gpus or ranks > 1) and amount(shm) >= amount(limit):
        yield f"shm_size is {shm}, which counts as memory, but memory_limit is {limit}: raise that above it"
