// Interface of the driver to the other libraries. The driver executes its own calls synchronously. Collectives in
// nccl.cpp take until other processes arrive, so streams and events must be waited for.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {
// Starts asynchronous work on a stream, ordered after all that the stream already waits for.
uint64_t emulated_work_begins(void *stream);
// Returns true if all work that this work depends on has ended, or ends within `milliseconds`.
bool emulated_work_may_run(uint64_t work, int milliseconds);
void emulated_work_ends(uint64_t work);

// Returns true if an allocation contains all of these bytes.
bool emulated_memory_holds(const void *begin, size_t bytes);
// Adds a line to the log.
void emulated_log(const char *line);

// Calls of the driver API.
int cuCtxGetDevice(int *device);
int cuDeviceGetUuid_v2(void *uuid, int device);
}
