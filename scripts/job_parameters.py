"""The valid values of each parameter of a Kubernetes training job. job_contradictions.py checks their combinations.

A template may lack some of these parameters and may have others, whose values are not checked.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Parameters = Mapping[str, Any]

MAX_NAME_LENGTH = 63  # characters of a Service's name and of a label's value
MAX_WORKERS = 10000
OLDEST_MINOR = 21
KINDS = ("jobs", "jobset", "indexed-job", "tfjob", "trainjob", "mpijob")

_name = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_claim = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
_quantity = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi)?")
_image = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._/:@]*")
_path = re.compile(r"(/[A-Za-z0-9._-]+)+")
_variable = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_program = re.compile(r"[A-Za-z0-9_][-A-Za-z0-9_.]*")
_secret_key = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?/[-._a-zA-Z0-9]{1,253}")
_units = {
    "": 1.0,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
}


@dataclass(frozen=True)
class Rule:
    """The valid values of one parameter. `allowed` describes them, to follow "must be" in a message."""

    kind: type
    allowed: str
    test: Callable[[Any], bool] = lambda value: True


def amount(quantity: str) -> float:
    """The value of a Kubernetes quantity, in base units (bytes, cores); 0 if it is malformed."""
    found = _quantity.fullmatch(quantity)
    return float(found[1]) * _units[found[2] or ""] if found else 0.0


def is_flat(value: Mapping[Any, Any]) -> bool:
    return all(isinstance(key, str) and isinstance(item, str) for key, item in value.items())


def is_path(value: str) -> bool:
    return bool(_path.fullmatch(value)) and not {".", ".."} & set(value.split("/"))


def is_resources(value: Mapping[Any, Any]) -> bool:
    """Whether it has Kubernetes' form of a container's resources, requests no more than the limits."""
    groups = {"requests", "limits"}
    if not set(value) <= groups or not all(isinstance(group, dict) for group in value.values()):
        return False
    amounts = [item for group in value.values() for item in group.items()]
    if not all(isinstance(key, str) and isinstance(text, str) and amount(text) > 0 for key, text in amounts):
        return False
    requests, limits = (value.get(group, {}) for group in ("requests", "limits"))
    return all(amount(text) <= amount(limits.get(key, text)) for key, text in requests.items())


def flag() -> Rule:
    return Rule(bool, "True or False, without quotes")


def number(minimum: int, maximum: int = 10**9) -> Rule:
    if maximum < 10**9:
        allowed = f"a whole number from {minimum} to {maximum}"
    else:
        allowed = f"a whole number of at least {minimum}"
    return Rule(int, allowed, lambda value: minimum <= value <= maximum)


def matching(pattern: re.Pattern[str], allowed: str, may_be_empty: bool = False) -> Rule:
    return Rule(str, allowed, lambda value: bool(pattern.fullmatch(value)) or (may_be_empty and not value))


def one_of(*words: str) -> Rule:
    return Rule(str, " or ".join(f'"{word}"' for word in words), lambda value: value in words)


def texts(pattern: re.Pattern[str], allowed: str) -> Rule:
    return Rule(
        list, allowed, lambda value: all(isinstance(item, str) and pattern.fullmatch(item) for item in value)
    )


def quantity(example: str, may_be_empty: bool = False) -> Rule:
    return Rule(
        str,
        f'a Kubernetes quantity such as "{example}"' + (', or ""' if may_be_empty else ""),
        lambda value: amount(value) > 0 or (may_be_empty and not value),
    )


def resources() -> Rule:
    return Rule(
        dict,
        "requests and limits, none lower than its request, such as "
        '{"requests": {"cpu": "1"}, "limits": {"memory": "4Gi"}}',
        is_resources,
    )


def port(may_be_zero: bool = False) -> Rule:
    return Rule(
        int,
        "a port from 1024 to 65535 (containers may not bind lower ones)" + (", or 0" if may_be_zero else ""),
        lambda value: 1024 <= value <= 65535 or (may_be_zero and value == 0),
    )


_name_rule = matching(
    _name, "lowercase letters, digits and -, with a letter first and a letter or digit last"
)
_claim_words = f"lowercase letters, digits, - and ., at most {MAX_NAME_LENGTH}, with a letter or digit at both ends"
_image_rule = matching(_image, 'the name of an image, such as "registry.example/lockstep:v1"')
_path_rule = Rule(str, 'an absolute path of letters, digits and ._-, such as "/pvcmnt"', is_path)
_anything = re.compile(r"[^\x00-\x1f\x7f]*")

RULES: dict[str, Rule] = {
    "deploy": flag(),
    "create_pvc_checkpoint": flag(),
    "create_volume_inspector": flag(),
    "inspect_once": flag(),
    "create_pvc_data": flag(),
    "fetch_data": flag(),
    "tensorboard": flag(),
    "evaluator": flag(),
    "serve": flag(),
    "network_policy": flag(),
    "name": _name_rule,
    "image": _image_rule,
    "script": matching(_program, "the name of a program in the image"),
    "programs": texts(_program, 'a list of names, such as ["keras_mnist", "mine"]'),
    "kind": one_of(*KINDS),
    "command": texts(_anything, 'a list of strings, such as ["python", "/scripts/train.py"]'),
    "script_config_map": matching(_claim, 'the name of a ConfigMap, or ""', may_be_empty=True),
    "cmdline_args": texts(_anything, 'a list of strings, such as ["--learning-rate", "0.1"]'),
    "serve_args": texts(_anything, 'a list of strings, such as ["--max-rate", "100"]'),
    "serve_resources": resources(),
    "serve_model": matching(
        re.compile(r"(?!.*\.\.)[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*"), 'a path below model_checkpoint_dir, such as "export/best", or ""', True
    ),
    "evaluator_args": texts(_anything, 'a list of strings, such as ["--monitor", "accuracy"]'),
    "evaluator_resources": resources(),
    "epochs": number(0),
    "batch_size": number(0),
    "env": Rule(
        dict,
        'variables and their values in quotes, such as {"LOCKSTEP_SEED": "7"}',
        lambda value: is_flat(value) and all(_variable.fullmatch(key) for key in value),
    ),
    "secret_env": Rule(
        dict,
        'variables and where their values are, as SECRET/KEY, such as {"API_KEY": "credentials/api-key"}',
        lambda value: is_flat(value)
        and all(_variable.fullmatch(key) and _secret_key.fullmatch(source) for key, source in value.items()),
    ),
    "secret_volumes": Rule(
        dict,
        'names of Secrets and the paths where they are mounted, such as {"credentials": "/credentials"}',
        lambda value: is_flat(value)
        and all(_claim.fullmatch(secret) and is_path(path) for secret, path in value.items()),
    ),
    "worker_replicas": number(1, MAX_WORKERS),
    "ps_replicas": number(0, MAX_WORKERS),
    "port": port(),
    "num_gpus_per_worker": number(0, 64),
    "ranks_per_worker": number(0, 1024),
    "cpu_request": quantity("250m"),
    "cpu_limit": quantity("2", may_be_empty=True),
    "memory_request": quantity("512Mi"),
    "memory_limit": quantity("2Gi", may_be_empty=True),
    "ephemeral_storage": quantity("2Gi", may_be_empty=True),
    "shm_size": quantity("1Gi"),
    "job_token": matching(
        re.compile(r"generated|[!-~]{16,}"),
        '"generated", "", or at least 16 characters without blanks, such as the output of openssl rand -hex 16',
        may_be_empty=True,
    ),
    "restart": one_of("Never", "OnFailure"),
    "backoff_limit": number(0, 10**6),
    "rendezvous_timeout": number(1, 30 * 24 * 3600),
    "min_workers": number(0, MAX_WORKERS),
    "rejoin_timeout": number(0, 30 * 24 * 3600),
    "grace_period": number(1, 24 * 3600),
    "unreachable_after": number(1, 24 * 3600),
    "min_available": number(0, MAX_WORKERS),
    "active_deadline": number(0),
    "ttl_after_finished": number(0),
    "checkpoint_pvc_name": matching(_claim, _claim_words),
    "model_checkpoint_dir": _path_rule,
    "checkpoint_access_mode": one_of("ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"),
    "storage_class": matching(
        re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"), 'the name of a storage class, or ""', may_be_empty=True
    ),
    "storage_size": quantity("10G"),
    "data_pvc_name": matching(_claim, _claim_words + ', or ""', may_be_empty=True),
    "data_dir": Rule(str, _path_rule.allowed + ', or ""', lambda value: not value or is_path(value)),
    "data_access_mode": one_of("ReadWriteOnce", "ReadWriteMany"),
    "data_storage_size": quantity("1Gi"),
    "data_set": one_of("mnist", "fashion_mnist"),
    "data_mirror": matching(
        re.compile(r"https?://[!-~]+"), 'a URL such as "https://mirror.example/mnist", or ""', True
    ),
    "kubernetes_version": Rule(
        str,
        f'"1.{OLDEST_MINOR}" or a later version, in quotes',
        lambda value: bool(re.fullmatch(r"1\.[0-9]{1,3}", value)) and minor(value) >= OLDEST_MINOR,
    ),
    "image_pull_policy": one_of("IfNotPresent", "Always", "Never"),
    "image_pull_secrets": texts(_claim, 'a list of names of Secrets, such as ["registry"]'),
    "node_selector": Rule(dict, 'labels of nodes and their values in quotes, such as {"pool": "training"}', is_flat),
    "tolerations": Rule(
        list,
        'a list of tolerations, such as [{"key": "nvidia.com/gpu", "operator": "Exists"}]',
        lambda value: all(
            isinstance(item, dict) and item.keys() <= {"key", "operator", "value", "effect", "tolerationSeconds"}
            for item in value
        ),
    ),
    "affinity": one_of("spread", "pack"),
    "queue": matching(_claim, "the name of a LocalQueue, or \"\"", may_be_empty=True),
    "runtime_class": matching(_claim, 'the name of a runtime class, or ""', may_be_empty=True),
    "run_as_user": number(0, 2**31 - 1),
    "status_port": port(may_be_zero=True),
    "tensorboard_image": _image_rule,
}


def minor(version: str) -> int:
    return int(version.split(".")[1])


def show(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def wrong_values(given: Parameters) -> list[str]:
    known = [(name, value, RULES[name]) for name, value in given.items() if name in RULES]
    return [
        f"{name} is {show(value)} but must be {rule.allowed}"
        for name, value, rule in known
        if type(value) is not rule.kind or not rule.test(value)  # isinstance(True, int) is true
    ]
