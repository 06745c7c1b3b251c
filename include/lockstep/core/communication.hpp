// How gradients are exchanged between ranks: the choices of --communication and --gradient-compression.
#pragma once

namespace lockstep {

/// What carries gradients between ranks.
enum class Communication {
  automatic,  ///< shared memory within hosts and MPI between them; NCCL between GPUs
  shared,     ///< shared memory only
  mpi,        ///< MPI only: every rank counts as its own host, and gradients of a GPU go through host memory
  nccl,       ///< NCCL between GPUs, one rank per GPU
};

/// How gradients are encoded between hosts.
enum class GradientCompression {
  none,      ///< float32
  bfloat16,  ///< half the bytes, 8 bits of precision; sums are float32
};

}  // namespace lockstep
