// Functions of the MUSA runtime that this library exports, as libmusart does: 0 is success, else a musaError_t.
#pragma once

extern "C" {
#pragma GCC visibility push(default)
// graph.cpp
int musaProfilerStart();
int musaProfilerStop();
int musaGraphCreate(void** graph, unsigned flags);
int musaGraphDestroy(void* graph);
int musaGraphInstantiate(void** executable, void* graph, unsigned long long flags);
int musaGraphExecDestroy(void* executable);
int musaGraphLaunch(void* executable, void* stream);
// musart.cpp
int musaGetDevice(int* device);
int musaSetDevice(int device);
int musaDeviceSynchronize();
int musaGetLastError();
int musaEventCreateWithFlags(void** event, unsigned flags);
int musaEventDestroy(void* event);
int musaEventRecord(void* event, void* stream);
int musaEventQuery(void* event);
int musaEventSynchronize(void* event);
int musaStreamIsCapturing(void* stream, int* status);
int musaThreadExchangeStreamCaptureMode(int* mode);
#pragma GCC visibility pop
}
