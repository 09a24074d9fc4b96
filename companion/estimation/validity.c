/* Whether a filter state is beyond any flight, as validity.py says; every state of 100 in a second is asked twice. */

#include <math.h>

enum { SOUND, NOT_FINITE, NOT_POSITIVE, BEYOND_FLIGHT, GROWN }; /* as in validity.py */

static double largest(const double *x, int count, int stride) {
    double most = fabs(x[0]);
    for (int i = 1; i < count; i++) most = fmax(most, fabs(x[i * stride]));
    return most;
}

/* limits: of velocity, disturbance, and of the variances of attitude and velocity */
int eskf_divergence(const double *filter_state, const double *limits) {
    const int others = (int)filter_state[0], slow = (int)filter_state[1];
    const int n = ERROR_SIZE + POSE_SIZE * others + SLOW_SIZE * slow;
    const double *x = filter_state + NOMINAL;
    const double *P = filter_state + REST + POSE_STATE_SIZE * others + SLOW_SIZE * slow;
    double zero = 0;
    for (int i = 0; i < STATE_SIZE; i++) zero += 0 * x[i];
    for (int i = 0; i < n * n; i++) zero += 0 * P[i];
    if (zero != 0) return NOT_FINITE; /* a number that is not finite times 0 is not a number */
    for (int i = 0; i < n; i++)
        if (P[i * n + i] <= 0) return NOT_POSITIVE;
    if (largest(x + VELOCITY, 3, 1) > limits[0] || largest(x + DISTURBANCE, 3, 1) > limits[1]) return BEYOND_FLIGHT;
    if (largest(P + ATTITUDE_ERROR * (n + 1), 3, n + 1) > limits[2]) return GROWN;
    return largest(P + VELOCITY_ERROR * (n + 1), 3, n + 1) > limits[3] ? GROWN : SOUND;
}
