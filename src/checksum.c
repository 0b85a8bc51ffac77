/* FNV-1a: tells a damaged file from a sound one, not a forged one. */
#include "core.h"

uint64_t elvi_checksum(const unsigned char *bytes, size_t n)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < n; i++) hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
    return hash;
}
