#!/usr/bin/env bash
# mpirun for a workstation: allowed as root, more ranks than cores allowed (programs never set this themselves).
# Open MPI 4 and 5 name the same things differently; both are told.
set -euo pipefail
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# The world is this machine: without this, Open MPI 5 complains of interfaces it cannot pair.
export OMPI_MCA_btl_tcp_if_include=lo
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
exec mpirun --bind-to none "$@"
