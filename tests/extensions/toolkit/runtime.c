/* The libraries of the stand-in toolkit: libmusart.so, and libmtjpeg.so, which has one function. */
int musaGetLastError(void) { return 0; }
int musaGetDeviceCount(int *count) { *count = 2; return 0; }
const char *musaGetErrorString(int error) { return error ? "error" : "no error"; }
int mtjpegGetProperty(void) { return 52; }
