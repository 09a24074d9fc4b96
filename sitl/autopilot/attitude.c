/* Attitude loop, rate loop and mixer of a multirotor, one call per gyro sample.
 *
 * World ENU, body FLU. Structure after PX4's multicopter controllers:
 *   attitude  D. Brescianini, M. Hehn, R. D'Andrea, "Nonlinear quadrocopter attitude control", ETH 2013:
 *             tilt first, yaw with a weight, rate setpoint = 2 P Im(q_e)
 *   rates     PID with the derivative on the measurement, integral with limit, fading with the error, and
 *             stopped in the direction in which the mixer is saturated
 *   mixer     normalised pseudo-inverse; saturation is resolved in the order thrust (down only), roll, pitch, yaw
 */
#include <math.h>
#include <string.h>

#define ROTORS_MAX 16
#define YAW_MARGIN 0.15          /* motors may exceed their range by this much for yaw; thrust is reduced afterwards */
#define WEAK_COLUMN 0.2          /* a rotor with less effect than this is left out of a desaturation */
#define INTEGRAL_FADE_RAD_S 6.98131700797731791 /* 400 deg/s */

enum { LEVEL_OFF = 0, LEVEL_RATES = 1, LEVEL_ATTITUDE = 2 };

/* All members are double, so that the layout has no padding and is easy to mirror in attitude.py. */
typedef struct {
    /* inputs */
    double dt, level, landed, thrust;
    double gyro[3], q[4], q_sp[4];
    double yaw_rate_sp; /* about world z, NaN: none */
    double rate_sp_in[3]; /* body rates for LEVEL_RATES, NaN: keep the present rate */
    /* parameters */
    double att_p[3], yaw_weight, rate_max[3];
    double rate_p[3], rate_i[3], rate_d[3], rate_ff[3], int_lim[3];
    double gyro_cutoff_hz, dgyro_cutoff_hz, yaw_torque_cutoff_hz, thrust_model;
    double rotors;
    double mix[ROTORS_MAX][4];   /* roll, pitch, yaw torque and lift to motors */
    double reach[3][ROTORS_MAX]; /* motors to roll, pitch, yaw torque */
    /* state */
    double lp_x[3][2], rate_filtered[3], rate_previous[3], rate_derivative[3], integral[3], yaw_torque;
    double saturation[3], primed;
    /* outputs */
    double rate_sp[3], torque[3], motors[ROTORS_MAX];
} Loop;

static double clip(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

static void multiply(const double a[4], const double b[4], double out[4])
{
    out[0] = a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3];
    out[1] = a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2];
    out[2] = a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1];
    out[3] = a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0];
}

static void inverse(const double q[4], double out[4])
{
    out[0] = q[0];
    for (int i = 1; i < 4; i++) out[i] = -q[i];
}

static void body_z(const double q[4], double out[3])
{
    out[0] = 2.0 * (q[1] * q[3] + q[0] * q[2]);
    out[1] = 2.0 * (q[2] * q[3] - q[0] * q[1]);
    out[2] = 1.0 - 2.0 * (q[1] * q[1] + q[2] * q[2]);
}

/* Attitude error to rate setpoint: the shortest rotation that aligns thrust, then the weighted remainder about z. */
static void attitude(Loop *s)
{
    double z[3], z_sp[3], tilt[4], reduced[4], rest[4], partial[4], error[4], qi[4];
    body_z(s->q, z);
    body_z(s->q_sp, z_sp);
    double dot = z[0] * z_sp[0] + z[1] * z_sp[1] + z[2] * z_sp[2];
    if (dot < -1.0 + 1e-6) { /* upside down: the tilt axis is arbitrary, take the full setpoint */
        memcpy(reduced, s->q_sp, sizeof reduced);
    } else {
        tilt[0] = 1.0 + dot;
        tilt[1] = z[1] * z_sp[2] - z[2] * z_sp[1];
        tilt[2] = z[2] * z_sp[0] - z[0] * z_sp[2];
        tilt[3] = z[0] * z_sp[1] - z[1] * z_sp[0];
        double n = sqrt(tilt[0] * tilt[0] + tilt[1] * tilt[1] + tilt[2] * tilt[2] + tilt[3] * tilt[3]);
        for (int i = 0; i < 4; i++) tilt[i] /= n;
        multiply(tilt, s->q, reduced);
    }
    inverse(reduced, qi);
    multiply(qi, s->q_sp, rest);
    if (rest[0] < 0.0)
        for (int i = 0; i < 4; i++) rest[i] = -rest[i];
    double half_yaw = s->yaw_weight * atan2(rest[3], rest[0]);
    double weighted[4] = {cos(half_yaw), 0.0, 0.0, sin(half_yaw)};
    multiply(reduced, weighted, partial);
    inverse(s->q, qi);
    multiply(qi, partial, error);
    double sign = error[0] < 0.0 ? -2.0 : 2.0;
    double yaw_p = s->yaw_weight > 1e-4 ? s->att_p[2] / s->yaw_weight : s->att_p[2];
    s->rate_sp[0] = sign * error[1] * s->att_p[0];
    s->rate_sp[1] = sign * error[2] * s->att_p[1];
    s->rate_sp[2] = sign * error[3] * yaw_p;
    if (isfinite(s->yaw_rate_sp)) { /* rate about world z, in body axes */
        s->rate_sp[0] += s->yaw_rate_sp * 2.0 * (s->q[1] * s->q[3] - s->q[0] * s->q[2]);
        s->rate_sp[1] += s->yaw_rate_sp * 2.0 * (s->q[2] * s->q[3] + s->q[0] * s->q[1]);
        s->rate_sp[2] += s->yaw_rate_sp * z[2];
    }
    for (int i = 0; i < 3; i++) s->rate_sp[i] = clip(s->rate_sp[i], -s->rate_max[i], s->rate_max[i]);
}

/* Second-order Butterworth low pass on the gyro, first-order low pass on its derivative. */
static void filter(Loop *s)
{
    const double pi = 3.14159265358979323846;
    double k = tan(pi * fmin(s->gyro_cutoff_hz * s->dt, 0.45)), norm = 1.0 + sqrt(2.0) * k + k * k;
    double b = k * k / norm, a1 = 2.0 * (k * k - 1.0) / norm, a2 = (1.0 - sqrt(2.0) * k + k * k) / norm;
    double alpha = s->dt / (s->dt + 1.0 / (2.0 * pi * s->dgyro_cutoff_hz));
    for (int i = 0; i < 3; i++) {
        if (s->primed == 0.0) {
            s->lp_x[i][0] = s->lp_x[i][1] = s->gyro[i] / (1.0 + a1 + a2);
            s->rate_previous[i] = s->gyro[i];
            s->rate_derivative[i] = 0.0;
        }
        double x = s->gyro[i] - a1 * s->lp_x[i][0] - a2 * s->lp_x[i][1];
        s->rate_filtered[i] = b * (x + 2.0 * s->lp_x[i][0] + s->lp_x[i][1]);
        s->lp_x[i][1] = s->lp_x[i][0];
        s->lp_x[i][0] = x;
        s->rate_derivative[i] += alpha * ((s->rate_filtered[i] - s->rate_previous[i]) / s->dt - s->rate_derivative[i]);
        s->rate_previous[i] = s->rate_filtered[i];
    }
    s->primed = 1.0;
}

static void rates(Loop *s)
{
    for (int i = 0; i < 3; i++) {
        double error = s->rate_sp[i] - s->rate_filtered[i];
        s->torque[i] = s->rate_p[i] * error + s->integral[i] - s->rate_d[i] * s->rate_derivative[i]
                     + s->rate_ff[i] * s->rate_sp[i];
        if (s->landed == 0.0) {
            if (s->saturation[i] > 0.0) error = fmin(error, 0.0);
            if (s->saturation[i] < 0.0) error = fmax(error, 0.0);
            double fade = error / INTEGRAL_FADE_RAD_S;
            fade = fmax(0.0, 1.0 - fade * fade);
            s->integral[i] = clip(s->integral[i] + fade * s->rate_i[i] * error * s->dt, -s->int_lim[i], s->int_lim[i]);
        }
    }
    if (s->yaw_torque_cutoff_hz > 0.0) {
        double alpha = s->dt / (s->dt + 1.0 / (6.28318530717958648 * s->yaw_torque_cutoff_hz));
        s->yaw_torque += alpha * (s->torque[2] - s->yaw_torque);
        s->torque[2] = s->yaw_torque;
    }
}

/* The multiple of a column that moves the outputs into [0, upper], as far as one column can. */
static double relief(int n, const double *u, const double *column, double upper)
{
    double low = 0.0, high = 0.0;
    for (int i = 0; i < n; i++) {
        if (fabs(column[i]) < WEAK_COLUMN) continue;
        double excess = u[i] < 0.0 ? -u[i] : u[i] > upper ? upper - u[i] : 0.0;
        double k = excess / column[i];
        low = fmin(low, k);
        high = fmax(high, k);
    }
    return low + high;
}

static void desaturate(int n, double *u, const double *column, double upper, int down_only)
{
    double k = relief(n, u, column, upper);
    if (down_only && k > 0.0) return;
    for (int i = 0; i < n; i++) u[i] += k * column[i];
    k = 0.5 * relief(n, u, column, upper);
    if (down_only && k > 0.0) k = 0.0;
    for (int i = 0; i < n; i++) u[i] += k * column[i];
}

static void mixer(Loop *s)
{
    const int n = (int)s->rotors;
    double u[ROTORS_MAX], columns[4][ROTORS_MAX], got[3] = {0.0, 0.0, 0.0};
    const double *lift = columns[3];
    for (int i = 0; i < n; i++) {
        for (int axis = 0; axis < 4; axis++) columns[axis][i] = s->mix[i][axis];
        u[i] = lift[i] * s->thrust + s->mix[i][0] * s->torque[0] + s->mix[i][1] * s->torque[1];
    }
    desaturate(n, u, lift, 1.0, 1);
    desaturate(n, u, columns[0], 1.0, 0);
    desaturate(n, u, columns[1], 1.0, 0);
    for (int i = 0; i < n; i++) u[i] += s->mix[i][2] * s->torque[2];
    desaturate(n, u, columns[2], 1.0 + YAW_MARGIN, 0);
    desaturate(n, u, lift, 1.0, 1);
    for (int i = 0; i < n; i++) {
        u[i] = clip(u[i], 0.0, 1.0);
        for (int axis = 0; axis < 3; axis++) got[axis] += u[i] * s->reach[axis][i];
        /* thrust = f x² + (1 - f) x, solved for the motor command x */
        double f = s->thrust_model;
        s->motors[i] = f > 1e-6 ? (-(1.0 - f) + sqrt((1.0 - f) * (1.0 - f) + 4.0 * f * u[i])) / (2.0 * f) : u[i];
    }
    for (int axis = 0; axis < 3; axis++) {
        double missing = s->torque[axis] - got[axis];
        s->saturation[axis] = missing > 1e-6 ? 1.0 : missing < -1e-6 ? -1.0 : 0.0;
    }
}

unsigned long loop_size(void) { return sizeof(Loop); }

void loop_step(Loop *s)
{
    filter(s);
    if (s->level == LEVEL_OFF) {
        for (int i = 0; i < 3; i++) s->integral[i] = s->torque[i] = s->rate_sp[i] = s->saturation[i] = 0.0;
        s->yaw_torque = 0.0;
        for (int i = 0; i < ROTORS_MAX; i++) s->motors[i] = 0.0;
        return;
    }
    if (s->level == LEVEL_ATTITUDE) {
        attitude(s);
    } else {
        for (int i = 0; i < 3; i++)
            s->rate_sp[i] = isfinite(s->rate_sp_in[i]) ? s->rate_sp_in[i] : s->rate_filtered[i];
    }
    rates(s);
    mixer(s);
}
