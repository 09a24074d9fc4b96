/* Noise of a depth camera, one image in one call: sigma = base_m * exp(m * d), and pixels without a value.

   Random numbers come from a counter (the number of the pixel) and a key (seed and number of the image), so an image
   does not depend on the images before it. Two pixels share one Box-Muller pair. log, exp, sin and cos are polynomials
   (errors below 3e-6), because the loop is then one that the compiler turns into vector instructions. */

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_MACHINE __attribute__((target_clones("avx2,fma", "default")))
#else
#define FOR_MACHINE
#endif

typedef struct {
    float base_m;          /* sigma at no distance */
    float min_m, max_m;    /* true depths and readings outside of these have no value */
    float unit_m;          /* of the result */
    uint32_t key[4];       /* from the seed and the number of the image */
    uint32_t without;      /* share of the pixels without a value, times 65536 */
} parameters_t;

int64_t parameters_size(void) { return sizeof(parameters_t); }

/* lowbias32 of C. Wellons, "Prospecting for Hash Functions" (2018): every input bit changes every output bit with
   probability 1/2 to within 0.2 %. */
static inline uint32_t mixed(uint32_t x) {
    x ^= x >> 16;
    x *= 0x7feb352dU;
    x ^= x >> 15;
    x *= 0x846ca68bU;
    x ^= x >> 16;
    return x;
}

static inline float as_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline uint32_t as_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

/* exp(x) for 0 <= x <= 62: 2^whole * 2^part, the part in [-0.5, 0.5]. Above, up to the largest m * d of 300, a finite
   number beyond 1e27, which puts every reading out of its range. The limit is that of the integer, because compilers turn
   one of x into a branch and leave the loop scalar. */
static inline float exponential(float x) {
    float scaled = x * 1.44269504f;
    int32_t whole = (int32_t)(scaled + 0.5f);
    whole = whole > 90 ? 90 : whole;
    float p = (scaled - (float)whole) * 0.69314718f;
    float series = 1.0f + p * (1.0f + p * (0.5f + p * (0.16666667f + p * (0.041666667f + p * 0.0083333333f))));
    return series * as_float((uint32_t)(whole + 127) << 23);
}

/* -2 ln(u) for u in (0, 1]: u = 2^e (1 + f), f in [-1/3, 1/3]; ln(1 + f) = 2 atanh(f / (2 + f)). */
static inline float minus_two_log(float u) {
    uint32_t bits = as_bits(u);
    int32_t e = (int32_t)((bits - 0x3f2aaaabU) & 0xff800000U) >> 23;
    float f = as_float(bits - ((uint32_t)e << 23)) - 1.0f;
    float s = f / (2.0f + f), s2 = s * s;
    float log1 = 2.0f * s * (1.0f + s2 * (0.33333333f + s2 * (0.2f + s2 * (0.14285714f + s2 * 0.11111111f))));
    return -2.0f * (log1 + 0.69314718f * (float)e);
}

/* sin(2 pi t) for t in [-0.5, 0.5]: folded to a quarter turn. */
static inline float sine_of_turns(float t) {
    float folded = t > 0.25f ? 0.5f - t : t;
    folded = folded < -0.25f ? -0.5f - folded : folded;
    float x = folded * 6.28318531f, x2 = x * x;
    return x * (1.0f + x2 * (-0.16666667f + x2 * (0.0083333333f + x2 * (-1.9841270e-4f + x2 * 2.7557319e-6f))));
}

static inline uint16_t reading(float depth_m, float m, float normal, uint32_t draw, const parameters_t *c) {
    float inside = depth_m >= c->min_m && depth_m <= c->max_m ? depth_m : c->min_m;
    float noisy = inside + c->base_m * exponential(m * inside) * normal;
    float limited = noisy < c->min_m ? c->min_m : noisy;
    float steps = limited / c->unit_m + 0.5f;
    int32_t counted = (int32_t)(steps > 65535.0f ? 65535.0f : steps);
    int32_t in_front = (depth_m >= c->min_m) & (noisy >= c->min_m), within = (depth_m <= c->max_m) & (noisy <= c->max_m);
    int32_t seen = in_front & within & (draw >= c->without);
    return (uint16_t)(seen ? counted : 0);
}

/* depth_m: n depths [m]; material: n numbers of per_m [1/m]; out: n readings, 0: no value. */
FOR_MACHINE
void depth_noise(const parameters_t *c, int64_t n, const float *restrict depth_m, const uint8_t *restrict material,
                 const float *restrict per_m, uint16_t *restrict out) {
    const parameters_t p = *c;
    int64_t half = n / 2;
    for (int64_t i = 0; i < half; i++) {
        uint32_t counter = (uint32_t)i;
        uint32_t a = mixed(mixed(counter ^ p.key[0]) + p.key[1]);
        uint32_t b = mixed(a ^ (counter + p.key[2]));
        uint32_t draws = mixed(b + p.key[3]);
        float u = ((float)(int32_t)(a >> 8) + 0.5f) * (1.0f / 16777216.0f);
        float radius = __builtin_sqrtf(minus_two_log(u));
        float turn = (float)(int32_t)(b >> 8) * (1.0f / 16777216.0f) - 0.5f;
        float quarter = turn + (turn > 0.25f ? -0.75f : 0.25f);
        out[i] = reading(depth_m[i], per_m[material[i]], radius * sine_of_turns(turn), draws & 0xffffU, &p);
        out[i + half] = reading(depth_m[i + half], per_m[material[i + half]], radius * sine_of_turns(quarter),
                                draws >> 16, &p);
    }
    if (n % 2) {
        uint32_t a = mixed(mixed((uint32_t)half ^ p.key[0]) + p.key[1]);
        uint32_t b = mixed(a ^ ((uint32_t)half + p.key[2]));
        float u = ((float)(int32_t)(a >> 8) + 0.5f) * (1.0f / 16777216.0f);
        float turn = (float)(int32_t)(b >> 8) * (1.0f / 16777216.0f) - 0.5f;
        out[n - 1] = reading(depth_m[n - 1], per_m[material[n - 1]],
                             __builtin_sqrtf(minus_two_log(u)) * sine_of_turns(turn), mixed(b + p.key[3]) & 0xffffU, &p);
    }
}
