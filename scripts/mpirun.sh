#!/usr/bin/env bash
# mpirun for a workstation: allows root and more ranks than cores. Programs never set these variables.
# The variables of Open MPI 4 and 5 differ; both are set.
set -euo pipefail
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# All ranks run on this machine. Without this, Open MPI 5 warns about network interfaces that it cannot pair.
export OMPI_MCA_btl_tcp_if_include=lo
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
# Threads that wait for each other sleep soon (src/core/bound_spinning.hpp). A choice of the user's wins.
if [ -z "${GOMP_SPINCOUNT:-}${OMP_WAIT_POLICY:-}" ]; then export GOMP_SPINCOUNT=1000; fi
exec mpirun --bind-to none "$@"
