/* Adaptation of the measurement noise, and the replay of measurements that the filter explains, in one call.

   A late measurement makes the filter run again from its stamp: of ten updates nine are repetitions. This file is the loop over
   them: predict over the inertial samples, judge, correct, adapt. What needs a decision (a rejected measurement, a bundle, a
   gap in the samples, a state beyond its bound) ends the call before that measurement, which the caller then takes by
   companion/estimation/filter.py.

   The kernels are those of eskf.c; the structs have mirrors in replay.py, which compares the sizes. */

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef long long integer;
typedef int kernel(const double **arg, double **res, integer *iw, double *w, int mem);
kernel eskf_predict_imu, eskf_update_attitude, eskf_update_velocity, eskf_update_position, eskf_update_specific_force;
kernel eskf_correct;

/* --- adaptation; the equations stand in adaptation.py */

enum { SIZE, COUNT, OLDEST, TOTAL, SCALES = TOTAL + 2, SAMPLES = SCALES + 2 }; /* numbers of a window */

static double smaller(double a, double b) { return b < a ? b : a; } /* a where one is not a number */

/* Enter an innovation into a window, in place. m axes, the first n of them in group 0; clip: square of the factor on the
   residual. */
void eskf_adapt(double *window, int64_t m, int64_t n, const double *matched, const double *expected, double clip,
                double limit) {
    const int64_t size = (int64_t)window[SIZE], count = (int64_t)window[COUNT], oldest = (int64_t)window[OLDEST];
    double r[2], total[2], scale[2];
    for (int g = 0; g < 2; g++) {
        const int64_t first = g ? n : 0, end = g ? m : n;
        double sum_matched = 0, sum_expected = 0;
        for (int64_t i = first; i < end; i++) sum_matched += matched[i], sum_expected += expected[i];
        const double s = window[SCALES + g];
        r[g] = end > first ? s * smaller(1 + (sum_matched * clip - sum_expected) / (double)(end - first), limit) : s;
    }
    if (!(fabs(r[0]) + fabs(r[1]) < INFINITY)) return; /* such a residual carries no information about the noise */
    const int full = count == size;
    double *place = window + SAMPLES + 2 * (full ? oldest : count);
    const double empty = full ? 0 : (double)(size - count - 1);
    for (int g = 0; g < 2; g++) {
        total[g] = window[TOTAL + g] + r[g];
        if (full) total[g] -= place[g];
        place[g] = r[g];
        window[TOTAL + g] = total[g];
        scale[g] = (total[g] + empty) / (double)size;
    }
    window[COUNT] = (double)(full ? size : count + 1);
    window[OLDEST] = (double)(full ? (oldest + 1) % size : 0);
    const int nominal = scale[0] <= 1 && scale[1] <= 1;
    for (int g = 0; g < 2; g++)
        window[SCALES + g] = nominal ? 1 : smaller(scale[g] > 1 ? scale[g] : 1, SCALE_MAX * SCALE_MAX);
}

/* --- replay */

#define AIDS 4          /* the sensors of the flight controller, in the order of replay.py */
#define MEASURED_SIZE 4 /* numbers of the largest measurement */
#define IMU_ROW (1 + IMU_SIZE)

enum { NOTHING = -1, ATTITUDE_, VELOCITY_, POSITION_, FORCE_ };

/* A measurement. */
typedef struct {
    double stamp_s;
    int64_t sensor;
    double y[MEASURED_SIZE];
    double thrust;         /* of FORCE_ along the thrust: the command; NaN: the force across it */
    double period_s;       /* of FORCE_ */
    const double *parameters; /* of FORCE_ along the thrust */
    int64_t vertical;      /* of VELOCITY_ and POSITION_: only z counts while the inertial samples drive the prediction */
} entry_t;

/* What belongs to a filter state besides its numbers; the windows of the sensors follow. */
typedef struct {
    double time_s, by_imu, accepted_s[AIDS];
} record_t;

typedef struct {
    /* of each call */
    int64_t entries;
    const entry_t *entry;
    int64_t numbers, row; /* of a filter state; with its record and windows */
    const double *start;  /* row before the first entry */
    double *rows;         /* results: row after each entry */
    double *nis;          /* and of each entry; NaN without a measurement */
    double *scales;       /* and before it the scales of its sensor, (entries, 2) */
    int64_t samples;
    const double *sample; /* stamp, angular rate, specific force */
    double until_s;       /* from here on other noise applies */
    double sight_s;       /* last observation of a bundle; NaN: none */
    int64_t out_of_sight; /* for so long that other noise applies */
    int64_t window[AIDS]; /* place of each window in a row */
    int64_t open[AIDS];   /* whether the sensor's last measurement was rejected */
    /* of all calls */
    const double *rates, *noise, *accel_2; /* of the prediction; of the stream's specific force */
    double out_of_sight_s[2];
    double limit[AIDS];   /* of the gates */
    double variance[AIDS][3], unused, unaided;
    double *parameters;   /* of the flight model that the last force used, kept between calls */
    double *gain;
    const double *prior, *within; /* of the state */
    double gap_max_s, hold_s, first_s, shortest_s;
} replay_t;

int64_t eskf_replay_sizes(int64_t which) {
    return which == 0 ? sizeof(replay_t) : which == 1 ? sizeof(entry_t) : sizeof(record_t);
}

static const double *sample_at(const replay_t *r, int64_t at) { return r->sample + IMU_ROW * at; }

/* Beginning of a sample's interval, as `ImuSamples._begin`. */
static double begin(const replay_t *r, int64_t at) {
    const double before = at ? sample_at(r, at - 1)[0] : -INFINITY, stamp = sample_at(r, at)[0];
    if (stamp - before <= r->gap_max_s) return before;
    return stamp - r->first_s > before ? stamp - r->first_s : before;
}

static void predict(const replay_t *r, double *state, const double *sample, double dt) {
    double step[IMU_ROW], one = 1;
    memcpy(step, sample, sizeof step);
    step[0] = dt;
    const double *arg[] = {step, &one, r->rates, r->noise};
    eskf_predict_imu(arg, &state, 0, 0, 0);
}

/* Predict over the samples from one time on, without a gap, to another at most, as `ImuSamples.cover`; returns the time reached. */
static double cover(const replay_t *r, double *state, double start_s, double end_s) {
    int64_t at = 0, above = r->samples;
    while (at < above) { /* the first sample after the start */
        const int64_t middle = (at + above) / 2;
        if (start_s + r->shortest_s < sample_at(r, middle)[0]) above = middle;
        else at = middle + 1;
    }
    double t = start_s;
    while (at < r->samples && end_s - t > r->shortest_s && begin(r, at) <= t + r->shortest_s) {
        const double until = smaller(sample_at(r, at)[0], end_s);
        predict(r, state, sample_at(r, at), until - t);
        t = until;
        at++;
    }
    if (at && end_s - t > r->shortest_s) {
        double until = smaller(sample_at(r, at - 1)[0] + r->hold_s, end_s);
        if (at < r->samples) until = smaller(until, begin(r, at));
        if (until - t > r->shortest_s) {
            predict(r, state, sample_at(r, at - 1), until - t);
            t = until;
        }
    }
    return t;
}

static int out_of_sight(const replay_t *r, double time_s) {
    const double ago_s = time_s - r->sight_s;
    return r->out_of_sight_s[0] < ago_s && ago_s < r->out_of_sight_s[1];
}

/* Judge a measurement, correct the state with it and adapt its noise; 0 if the gate rejects it. */
static int measure(const replay_t *r, const entry_t *entry, int vertical, double *state, double *window, double *nis) {
    static kernel *const updates[] = {eskf_update_attitude, eskf_update_velocity, eskf_update_position,
                                      eskf_update_specific_force};
    const int sensor = (int)entry->sensor, force = sensor == FORCE_, along = force && !isnan(entry->thrust);
    double R[9] = {0}, nu[3], whitened[3], matched[3], expected[3], thrust = 0;
    if (along) memcpy(r->parameters, entry->parameters, sizeof(double) * PARAMETER_SIZE);
    if (force) thrust = along ? entry->thrust : entry->y[2] / r->parameters[0];
    for (int i = 0; i < 3; i++) {
        double variance = r->variance[sensor][i];
        if (force) {
            const double stream = r->accel_2[i] / entry->period_s;
            if (stream > variance) variance = stream;
            if (along == (i < 2)) variance = r->unused;
        }
        if (vertical && i < 2) variance = r->unaided;
        R[4 * i] = variance;
    }
    const double *scales = window + SCALES;
    if (scales[0] != 1 || scales[1] != 1)
        for (int i = 0; i < 3; i++) {
            const double root = sqrt(scales[i == 2]);
            R[4 * i] *= root * root;
        }
    const double size = 3, *arg[4] = {entry->y, R}, *correct_arg[] = {&size, r->gain};
    if (force) arg[1] = &thrust, arg[2] = r->parameters, arg[3] = R;
    double *res[] = {state, nu, whitened, nis, matched, expected, r->gain};
    updates[sensor](arg, res, 0, 0, 0);
    if (!(*nis <= r->limit[sensor])) return 0;
    if (!vertical) eskf_adapt(window, 3, 2, matched, expected, 1, r->limit[sensor]);
    eskf_correct(correct_arg, &state, 0, 0, 0);
    return 1;
}

static int beyond_bounds(const replay_t *r, const double *x) {
    for (int i = 0; i < STATE_SIZE; i++)
        if (fabs(x[i] - r->prior[i]) > r->within[i]) return 1;
    return 0;
}

/* Take the entries in their order; returns how many of them were taken. */
int64_t eskf_replay(const replay_t *r) {
    for (int64_t i = 0; i < r->entries; i++) {
        const entry_t *entry = r->entry + i;
        const int sensor = (int)entry->sensor;
        double *row = r->rows + r->row * i;
        memcpy(row, i ? row - r->row : r->start, sizeof(double) * r->row);
        record_t *record = (record_t *)(row + r->numbers);
        const double from_s = record->time_s;
        if (from_s >= r->until_s || out_of_sight(r, from_s) != r->out_of_sight) return i;
        if (entry->stamp_s - from_s > r->shortest_s) {
            if (entry->stamp_s - cover(r, row, from_s, entry->stamp_s) > r->shortest_s) return i;
            record->by_imu = 1;
        }
        if (entry->stamp_s > from_s) record->time_s = entry->stamp_s;
        r->nis[i] = NAN;
        if (sensor != NOTHING) {
            double *window = row + r->window[sensor];
            if (r->open[sensor] || (sensor == POSITION_ && out_of_sight(r, record->time_s))) return i;
            memcpy(r->scales + 2 * i, window + SCALES, 2 * sizeof(double));
            const int vertical = entry->vertical && record->by_imu != 0;
            if (!measure(r, entry, vertical, row, window, r->nis + i)) return i;
            record->accepted_s[sensor] = record->time_s;
        }
        if (beyond_bounds(r, row + NOMINAL)) return i;
    }
    return r->entries;
}
