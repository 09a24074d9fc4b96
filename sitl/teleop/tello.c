/* The teleoperated quadrotor of M. E. Mora-Soto et al., "Building a realistic virtual simulator for unmanned aerial
 * vehicle teleoperation", Applied Sciences 11(24), 12018, 2021: model of appendix A, algorithm 1, explicit Euler at 1 ms.
 *
 * R = Rz(ψ) Rx(φ) Ry(θ);  η = (φ, θ, ψ);  body rates ω = (φ' cθ - ψ' sθ cφ, θ' + ψ' sφ, φ' sθ + ψ' cθ cφ)
 *
 *   m ξ'' + m g e_z + b (ξ' - wind) = R e_z f          M(η) η'' + h(η, η') + b_η η' = τ
 *
 * h = C(η, η') η' of the source, written out; tests/sitl_teleop derives it a second time from the energies. Wind, the
 * factor on the thrust, added torques and the floor are not in the source; still air and no floor give its model.
 * tello.py names the numbers of each array in the same order.
 */

#include <math.h>
#include <stdint.h>

#define STEP_S 1e-3
#define TILT_MAX 0.78539816339744831 /* π/4: algorithm 1 bounds the desired pitch and roll */
#define UPRIGHT 1.55                 /* |φ| beyond which M(η) counts as singular; it is at π/2 */
#define LARGEST 1e6                  /* a state beyond it has diverged */
#define LIMIT_EVERY 64               /* steps between two looks at the limit */
#define ERROR_MAX 10.0               /* m or rad: a larger error counts as this one, so that every candidate has a cost */

enum { Z, PSI, THETA, PHI, AXES }; /* the order of algorithm 1 */

enum {
    SCALE, P_GAIN = SCALE + AXES, I_GAIN = P_GAIN + AXES, D_GAIN = I_GAIN + AXES,
    MASS = D_GAIN + AXES, GRAVITY, I_XX, I_YY, I_ZZ, B_X, B_Y, B_Z, B_PHI, B_THETA, B_PSI,
    DELAY_S, TILT_BY_STEPS, FLOOR, PARAMETERS
};

enum {
    P, ANGLE = P + 3, V = ANGLE + 3, RATE = V + 3, /* angles and rates: φ, θ, ψ */
    WANTED = RATE + 3, SUM = WANTED + AXES, LAST = SUM + AXES,
    STARTED = LAST + AXES, THRUST, TORQUE, IMPACT = TORQUE + 3, ON_FLOOR, DIVERGED, STATES
};

enum { WIND, THRUST_FACTOR = WIND + 3, TORQUE_ADDED, AIR = TORQUE_ADDED + 3 };

int64_t parameters_count(void) { return PARAMETERS; }
int64_t states_count(void) { return STATES; }
int64_t air_count(void) { return AIR; }

static double bounded(double value, double limit) { return value > limit ? limit : value < -limit ? -limit : value; }

/* Algorithm 1: references from the sticks, then four PID controllers; the output of an axis without its feed-forward. */
static void references(const double *p, double *s, const double *u) {
    s[WANTED + Z] += p[SCALE + Z] * u[Z];
    if (s[WANTED + Z] < 0.0) s[WANTED + Z] = 0.0;
    s[WANTED + PSI] += p[SCALE + PSI] * u[PSI];
    for (int axis = THETA; axis <= PHI; axis++) {
        double by_stick = p[SCALE + axis] * u[axis];
        double wanted = p[TILT_BY_STEPS] != 0.0 ? s[WANTED + axis] + by_stick : by_stick;
        s[WANTED + axis] = u[axis] == 0.0 ? 0.0 : bounded(wanted, TILT_MAX);
    }
}

static double pid(const double *p, double *s, int axis, double measured) {
    double error = s[WANTED + axis] - measured;
    if (s[STARTED] == 0.0) s[LAST + axis] = error;
    double slope = (error - s[LAST + axis]) / STEP_S;
    s[LAST + axis] = error;
    s[SUM + axis] += error * STEP_S;
    return p[P_GAIN + axis] * error + p[I_GAIN + axis] * s[SUM + axis] + p[D_GAIN + axis] * slope;
}

typedef struct { double c_phi, s_phi, c_th, s_th; } tilt_t;

static tilt_t tilt_of(const double *s) {
    tilt_t tilt = {cos(s[ANGLE]), sin(s[ANGLE]), cos(s[ANGLE + 1]), sin(s[ANGLE + 1])};
    return tilt;
}

/* η'' of the rotation; the caller keeps |φ| below π/2. */
static void rotation(const double *p, const double *s, const tilt_t *tilt, const double *torque, double *acceleration) {
    double c_phi = tilt->c_phi, s_phi = tilt->s_phi, c_th = tilt->c_th, s_th = tilt->s_th;
    double d_phi = s[RATE], d_th = s[RATE + 1], d_psi = s[RATE + 2];
    double i_xx = p[I_XX], i_yy = p[I_YY], i_zz = p[I_ZZ], a = i_zz - i_xx;
    double sc = s_th * c_th, c_2 = c_th * c_th - s_th * s_th;
    double m11 = i_xx * c_th * c_th + i_zz * s_th * s_th, m13 = a * sc * c_phi, m22 = i_yy, m23 = i_yy * s_phi;
    double across = i_xx * s_th * s_th + i_zz * c_th * c_th;
    double m33 = i_yy * s_phi * s_phi + across * c_phi * c_phi;
    double turned = (i_yy - across) * s_phi * c_phi; /* half of the derivative of m33 by φ */

    double h1 = 2.0 * a * sc * d_th * d_phi + (a * c_2 - i_yy) * c_phi * d_th * d_psi - turned * d_psi * d_psi;
    double h2 = (i_yy - a * c_2) * c_phi * d_phi * d_psi - a * sc * d_phi * d_phi
              + a * sc * c_phi * c_phi * d_psi * d_psi;
    double h3 = (a * c_2 + i_yy) * c_phi * d_phi * d_th - a * sc * s_phi * d_phi * d_phi
              + 2.0 * (turned * d_phi - a * sc * c_phi * c_phi * d_th) * d_psi;

    double r1 = torque[0] - h1 - p[B_PHI] * d_phi;
    double r2 = torque[1] - h2 - p[B_THETA] * d_th;
    double r3 = torque[2] - h3 - p[B_PSI] * d_psi;
    double by_1 = m13 / m11, by_2 = m23 / m22;
    acceleration[2] = (r3 - by_1 * r1 - by_2 * r2) / (m33 - by_1 * m13 - by_2 * m23);
    acceleration[0] = (r1 - m13 * acceleration[2]) / m11;
    acceleration[1] = (r2 - m23 * acceleration[2]) / m22;
}

/* One millisecond. level: whether x and y count; a fit to attitude and height does without. */
static void step(const double *p, double *s, const double *u, const double *air, int level) {
    references(p, s, u);
    double thrust = pid(p, s, Z, s[P + 2]) + p[MASS] * p[GRAVITY];
    double torque[3];
    torque[2] = pid(p, s, PSI, s[ANGLE + 2]);
    torque[1] = pid(p, s, THETA, s[ANGLE + 1]);
    torque[0] = pid(p, s, PHI, s[ANGLE]);
    s[STARTED] = 1.0;
    thrust *= air[THRUST_FACTOR];
    s[THRUST] = thrust;
    for (int i = 0; i < 3; i++) {
        s[TORQUE + i] = torque[i];
        torque[i] += air[TORQUE_ADDED + i];
    }

    double angular[3], linear[3] = {0.0, 0.0, 0.0};
    tilt_t tilt = tilt_of(s);
    rotation(p, s, &tilt, torque, angular);
    double c_phi = tilt.c_phi, c_th = tilt.c_th;
    if (level) {
        double s_phi = tilt.s_phi, s_th = tilt.s_th, c_psi = cos(s[ANGLE + 2]), s_psi = sin(s[ANGLE + 2]);
        linear[0] = ((c_psi * s_th + c_th * s_phi * s_psi) * thrust - p[B_X] * (s[V] - air[WIND])) / p[MASS];
        linear[1] = ((s_th * s_psi - c_th * c_psi * s_phi) * thrust - p[B_Y] * (s[V + 1] - air[WIND + 1])) / p[MASS];
    }
    linear[2] = (c_th * c_phi * thrust - p[B_Z] * (s[V + 2] - air[WIND + 2])) / p[MASS] - p[GRAVITY];
    for (int i = 0; i < 3; i++) {
        s[P + i] += STEP_S * s[V + i];
        s[ANGLE + i] += STEP_S * s[RATE + i];
        s[V + i] += STEP_S * linear[i];
        s[RATE + i] += STEP_S * angular[i];
    }
    if (p[FLOOR] != 0.0) {
        s[ON_FLOOR] = s[P + 2] <= 0.0;
        if (s[ON_FLOOR] != 0.0) {
            if (-s[V + 2] > s[IMPACT]) s[IMPACT] = -s[V + 2];
            s[P + 2] = 0.0;
            s[V] = s[V + 1] = 0.0; /* it does not slide */
            if (s[V + 2] < 0.0) s[V + 2] = 0.0;
        }
    }
    double size = 0.0;
    for (int i = 0; i < 12; i++) size += fabs(s[i]);
    if (!(size < LARGEST) || fabs(s[ANGLE]) > UPRIGHT) s[DIVERGED] = 1.0;
}

static const double STILL[AIR] = {0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0};

/* Advance by steps milliseconds with sticks and air held; stops when the state diverges. */
void tello_advance(const double *p, double *s, const double *u, const double *air, int64_t steps) {
    for (int64_t i = 0; i < steps && s[DIVERGED] == 0.0; i++) step(p, s, u, air, 1);
}

/* The seven values of the rotation alone, for tests: η'' under a torque. */
void tello_rotation(const double *p, const double *s, const double *torque, double *acceleration) {
    tilt_t tilt = tilt_of(s);
    rotation(p, s, &tilt, torque, acceleration);
}

static const double *delayed(const double *p, const double *sticks, int64_t i) {
    int64_t at = i - (int64_t)(p[DELAY_S] / STEP_S + 0.5);
    return sticks + AXES * (at > 0 ? at : 0);
}

/* Height, ψ, θ, φ at the start of each of n milliseconds; sticks and path are (n, 4). Returns the steps before divergence. */
int64_t tello_follow(const double *p, double *s, const double *sticks, double *path, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (s[DIVERGED] != 0.0) return i;
        double *row = path + AXES * i;
        row[Z] = s[P + 2];
        row[PSI] = s[ANGLE + 2];
        row[THETA] = s[ANGLE + 1];
        row[PHI] = s[ANGLE];
        step(p, s, delayed(p, sticks, i), STILL, 0);
    }
    return n;
}

/* Integral of the squared error by axis, (candidates, 4), of the path against the flown one, (n, 4). After a divergence
 * every axis has its largest error. A candidate whose sum passes its limit is left there: it lost. */
void tello_errors(const double *candidates, int64_t count, const double *start, const double *sticks,
                  const double *flown, int64_t n, const double *limits, double *errors) {
    for (int64_t c = 0; c < count; c++) {
        const double *p = candidates + PARAMETERS * c;
        double s[STATES], sum[AXES] = {0.0, 0.0, 0.0, 0.0};
        for (int i = 0; i < STATES; i++) s[i] = start[i];
        int64_t i = 0;
        for (; i < n && s[DIVERGED] == 0.0; i++) {
            const double *row = flown + AXES * i;
            double e[AXES] = {row[Z] - s[P + 2], row[PSI] - s[ANGLE + 2], row[THETA] - s[ANGLE + 1], row[PHI] - s[ANGLE]};
            for (int axis = 0; axis < AXES; axis++) {
                double error = bounded(e[axis], ERROR_MAX);
                sum[axis] += error * error;
            }
            step(p, s, delayed(p, sticks, i), STILL, 0);
            if (i % LIMIT_EVERY == 0 && (sum[0] + sum[1] + sum[2] + sum[3]) * STEP_S > limits[c]) break;
        }
        double left = s[DIVERGED] != 0.0 ? (double)(n - i) : 0.0;
        for (int axis = 0; axis < AXES; axis++)
            errors[AXES * c + axis] = (sum[axis] + left * ERROR_MAX * ERROR_MAX) * STEP_S;
    }
}
