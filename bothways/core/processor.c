// Which instruction sets this processor and its operating system have. Compiled for any processor.

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

enum { AVX2 = 1, AVX512 = 2, AVX512_BF16 = 4, AMX = 8, NEON = 16, AMD_DOTS = 32 };

#if defined(__x86_64__)

#include <cpuid.h>
#include <stdint.h>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

// The registers that the operating system saves when it changes threads, a bit each.
static uint64_t saved_registers(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

// Linux gives the registers of AMX to a process that asks for them.
static int may_use_tiles(void) {
#if defined(__linux__)
    enum { REQUEST = 0x1023, TILE_DATA = 18 };  // ARCH_REQ_XCOMP_PERM
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
#else
    return 0;
#endif
}

static int has(uint32_t bits, int bit) { return bits >> bit & 1; }

// AMD's processors make two products of bfloat16 in the time of one of float32; Intel's, without AMX, one.
static int is_amd(void) {
    uint32_t a, b, c, d;
    return __get_cpuid(0, &a, &b, &c, &d) && b == signature_AMD_ebx && c == signature_AMD_ecx && d == signature_AMD_edx;
}

EXPORT int instruction_sets(void) {
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, 27)) return 0;  // OSXSAVE
    uint64_t saved = saved_registers();
    int basic = has(c, 12) && has(c, 29);  // FMA, F16C
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    if (!basic || !has(b, 5) || (saved & 0x6) != 0x6) return 0;

    int found = AVX2;
    // F, DQ, BW, VL
    if (!has(b, 16) || !has(b, 17) || !has(b, 30) || !has(b, 31) || (saved & 0xe6) != 0xe6) return found;
    found |= AVX512;

    int has_vnni = has(c, 11);
    int has_tiles = has(d, 22) && has(d, 24) && has(d, 25);  // AMX-BF16, AMX-TILE, AMX-INT8
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !has_vnni || !has(a, 5)) return found;
    found |= AVX512_BF16 | (is_amd() ? AMD_DOTS : 0);

    int saves_tiles = (saved >> 17 & 3) == 3;
    if (has_tiles && saves_tiles && may_use_tiles()) found |= AMX;
    return found;
}

#elif defined(__aarch64__)

EXPORT int instruction_sets(void) { return NEON; }

#else

EXPORT int instruction_sets(void) { return 0; }

#endif
