/* What a flight controller makes of the sticks, as seen from outside: each axis a lag behind its command, all behind a delay.
 *
 *   tilt      φ'' = (P (s u + φ_0 - φ) - φ') / T      P: attitude gain, T: lag of the rate loop, φ_0: trim
 *   heading   ψ'' = (s c(u) + u_0 - ψ') / T            c: dead zone, then PX4's expo, (1 - e) x + e x³
 *   height    z'' = (s c(u) + u_0 - z') / T            in Altitude mode, with another s for descents; with T as mass over
 *                                                      drag also thrust by stick
 *
 * Explicit Euler at 1 ms; response.py names the numbers in the same order. Axes z, ψ, θ, φ as in tello.c.
 */

#include <math.h>
#include <stdint.h>

#define STEP_S 1e-3
#define LIMIT_EVERY 64 /* as in tello.c */
#define ERROR_MAX 10.0

enum { Z, PSI, THETA, PHI, AXES };
enum {
    SCALE, TRIM = SCALE + AXES, LAG_S = TRIM + AXES, GAIN = LAG_S + AXES, DEAD = GAIN + 2, EXPO = DEAD + 2,
    DESCENT = EXPO + 2, DELAY_S, PARAMETERS
};

int64_t parameters_count(void) { return PARAMETERS; }

static const double *delayed(const double *p, const double *sticks, int64_t i) {
    int64_t at = i - (int64_t)(p[DELAY_S] / STEP_S + 0.5);
    return sticks + AXES * (at > 0 ? at : 0);
}

/* The stick of an axis after dead zone and expo. */
static double shaped(const double *p, int axis, double u) {
    double size = (fabs(u) - p[DEAD + axis]) / (1.0 - p[DEAD + axis]);
    if (size <= 0.0) return 0.0;
    return copysign((1.0 - p[EXPO + axis]) * size + p[EXPO + axis] * size * size * size, u);
}

/* x: z, ψ, θ, φ and their rates. */
static void step(const double *p, double *x, const double *u) {
    for (int axis = 0; axis < AXES; axis++) {
        double *rate = x + AXES + axis;
        double scale = axis == Z && u[Z] < 0.0 ? p[DESCENT] : p[SCALE + axis];
        double wanted = axis < THETA ? scale * shaped(p, axis, u[axis]) + p[TRIM + axis]
                                     : p[GAIN + axis - THETA] * (p[SCALE + axis] * u[axis] + p[TRIM + axis] - x[axis]);
        double acceleration = (wanted - *rate) / p[LAG_S + axis];
        x[axis] += STEP_S * *rate;
        *rate += STEP_S * acceleration;
    }
}

void response_follow(const double *p, const double *start, const double *sticks, double *path, int64_t n) {
    double x[2 * AXES];
    for (int i = 0; i < 2 * AXES; i++) x[i] = start[i];
    for (int64_t i = 0; i < n; i++) {
        for (int axis = 0; axis < AXES; axis++) path[AXES * i + axis] = x[axis];
        step(p, x, delayed(p, sticks, i));
    }
}

void response_errors(const double *candidates, int64_t count, const double *start, const double *sticks,
                     const double *flown, int64_t n, const double *limits, double *errors) {
    for (int64_t c = 0; c < count; c++) {
        const double *p = candidates + PARAMETERS * c;
        double x[2 * AXES], sum[AXES] = {0.0, 0.0, 0.0, 0.0};
        for (int i = 0; i < 2 * AXES; i++) x[i] = start[i];
        for (int64_t i = 0; i < n; i++) {
            for (int axis = 0; axis < AXES; axis++) {
                double e = fabs(flown[AXES * i + axis] - x[axis]);
                if (!(e < ERROR_MAX)) e = ERROR_MAX;
                sum[axis] += e * e;
            }
            step(p, x, delayed(p, sticks, i));
            if (i % LIMIT_EVERY == 0 && (sum[0] + sum[1] + sum[2] + sum[3]) * STEP_S > limits[c]) break;
        }
        for (int axis = 0; axis < AXES; axis++) errors[AXES * c + axis] = sum[axis] * STEP_S;
    }
}
