// A placeholder: one function of each instruction set, which -DISA=<name> names.

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

#define JOIN(name, isa) name##_##isa
#define NAME(name, isa) JOIN(name, isa)

EXPORT int NAME(stub, ISA)(void) { return 7; }
