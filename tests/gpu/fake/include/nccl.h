// The part of NCCL that Lockstep calls, faked on the host. See ../README.md.
#pragma once

#include "cuda_runtime_api.h"

#include <climits>
#include <cstddef>

#define NCCL_VERSION_CODE 21800

enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
};
enum ncclDataType_t { ncclFloat32 = 7 };
enum ncclRedOp_t { ncclSum = 0 };

struct ncclUniqueId {
  char internal[128];
};
struct ncclConfig_t {
  int blocking;
};
#define NCCL_CONFIG_INITIALIZER \
  { INT_MIN }  // NOLINT(cppcoreguidelines-macro-usage)

using ncclComm_t = struct ncclComm*;

ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* ring, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config);
ncclResult_t ncclCommFinalize(ncclComm_t ring);
ncclResult_t ncclCommDestroy(ncclComm_t ring);
ncclResult_t ncclCommAbort(ncclComm_t ring);
ncclResult_t ncclCommGetAsyncError(ncclComm_t ring, ncclResult_t* error);
const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t ring);
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t ring, cudaStream_t stream);
