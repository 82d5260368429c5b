// What other libraries use of the driver. All that the driver does itself happens at once; nccl.cpp has work that takes
// until other processes have come, so that streams and events must be waited for.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {
// Work that is under way on a stream from now on, after what the stream already waits for.
uint64_t emulated_work_begins(void *stream);
// Whether all that the work comes after has ended, or ends within so long.
bool emulated_work_may_run(uint64_t work, int milliseconds);
void emulated_work_ends(uint64_t work);

// Whether an allocation holds all of these bytes.
bool emulated_memory_holds(const void *begin, size_t bytes);
// Adds a line to the log.
void emulated_log(const char *line);

// Of the driver's own calls.
int cuCtxGetDevice(int *device);
int cuDeviceGetUuid_v2(void *uuid, int device);
}
