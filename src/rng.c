/* Keyed random streams: xoshiro256++ started from a hash of (key, iteration,
 * index), normals by the ziggurat of Marsaglia and Tsang in Doornik's form. */
#include "base.h"
#include <math.h>

static inline uint64_t rotl(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

/* finaliser of splitmix64: a bijection with full avalanche */
static inline uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static inline uint64_t next(uint64_t s[4])
{
    const uint64_t out = rotl(s[0] + s[3], 23) + s[0];
    const uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return out;
}

elvi_stream elvi_stream_at(const elvi_ziggurat *zig, uint64_t key,
                           uint64_t iteration, uint64_t index)
{
    /* Four differently salted hashes, so that two samples share a state only
     * if all 256 bits collide. */
    elvi_stream st;
    const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15);
    const uint64_t k = mix(key + golden);
    const uint64_t a = mix(k ^ mix(iteration + 2 * golden));
    const uint64_t b = mix(rotl(k, 32) + mix(iteration + 3 * golden));
    st.s[0] = mix(a ^ mix(index + 4 * golden));
    st.s[1] = mix(b + mix(index + 5 * golden));
    st.s[2] = mix(a + rotl(st.s[1], 17));
    st.s[3] = mix(b ^ rotl(st.s[0], 41)) | 1; /* never the all-zero state */
    st.zig = zig;
    return st;
}

double elvi_uniform(elvi_stream *st)
{
    /* 52 bits: with 53 the largest value would round to 1 */
    return ((double) (next(st->s) >> 12) + 0.5) * 0x1.0p-52;
}

/* right edge of the lowest full layer and the layers' common area */
static const double zig_r = 3.6541528853610088;
static const double zig_v = 0.00492867323399;

void elvi_ziggurat_init(elvi_ziggurat *zig)
{
    double f = exp(-0.5 * zig_r * zig_r);
    zig->edge[0] = zig_v / f;
    zig->edge[1] = zig_r;
    for (int i = 2; i < ELVI_ZIG_LAYERS; i++) {
        zig->edge[i] = sqrt(-2.0 * log(zig_v / zig->edge[i - 1] + f));
        f = exp(-0.5 * zig->edge[i] * zig->edge[i]);
    }
    zig->edge[ELVI_ZIG_LAYERS] = 0.0;
    for (int i = 0; i < ELVI_ZIG_LAYERS; i++)
        zig->ratio[i] = zig->edge[i + 1] / zig->edge[i];
}

static double normal_tail(elvi_stream *st, int negative)
{
    double x, y;
    do {
        x = log(elvi_uniform(st)) / zig_r;
        y = log(elvi_uniform(st));
    } while (-2.0 * y < x * x);
    return negative ? x - zig_r : zig_r - x;
}

static double normal(elvi_stream *st)
{
    const elvi_ziggurat *zig = st->zig;
    for (;;) {
        const uint64_t bits = next(st->s);
        const int i = (int) (bits & (ELVI_ZIG_LAYERS - 1));
        /* the top 53 bits as a number in (-1, 1) */
        const double u = ((double) ((int64_t) bits >> 11) + 0.5) * 0x1.0p-52;
        if (fabs(u) < zig->ratio[i]) return u * zig->edge[i];
        if (i == 0) return normal_tail(st, u < 0.0);
        const double x = u * zig->edge[i];
        const double f0 = exp(-0.5 * (zig->edge[i] * zig->edge[i] - x * x));
        const double f1 = exp(-0.5 * (zig->edge[i + 1] * zig->edge[i + 1] - x * x));
        if (f1 + elvi_uniform(st) * (f0 - f1) < 1.0) return x;
    }
}

void elvi_fill_normal(elvi_stream *st, double *z, int n)
{
    elvi_stream local = *st; /* in registers, away from z's aliases */
    for (int i = 0; i < n; i++) z[i] = normal(&local);
    *st = local;
}

/* Marsaglia and Tsang (2000), with their boost for shapes below 1 */
double elvi_gamma(elvi_stream *st, double shape)
{
    if (shape < 1.0) {
        const double u = elvi_uniform(st);
        return elvi_gamma(st, shape + 1.0) * pow(u, 1.0 / shape);
    }
    const double d = shape - 1.0 / 3.0, c = 1.0 / sqrt(9.0 * d);
    for (;;) {
        const double x = normal(st);
        double v = 1.0 + c * x;
        if (v <= 0.0) continue;
        v = v * v * v;
        if (log(elvi_uniform(st)) < 0.5 * x * x + d * (1.0 - v + log(v)))
            return d * v;
    }
}
