// A placeholder: which instruction sets the processor has.

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

EXPORT int instruction_sets(void) { return 1; }
