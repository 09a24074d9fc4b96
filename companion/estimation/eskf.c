/* The covariance algebra of the error-state Kalman filter, which is the same for every model.

   Residuals, measurement matrices, transitions and the injection of a correction come from acados_gen/eskf_model.py as
   generated functions (declared below, in CasADi's calling convention, which the functions here share). With S = H P Hᵀ
   + R = L Lᵀ and W = P Hᵀ L⁻ᵀ:  K ν = W L⁻¹ ν,  P corrected = P - W Wᵀ. This equals Joseph's form for this gain, is
   symmetric in every rounding, and takes a third of its time. The loops run over contiguous rows, so the compiler
   vectorises them; it cannot vectorise an expression that is written out number by number.

   The sizes in capitals come from companion/estimation/layout.py as compiler flags. Every covariance is exactly
   symmetric, so its rows equal its columns. Matrices of generated functions are column-major. */

#include <math.h>
#include <string.h>

#define N ERROR_SIZE
#define MOTION MOTION_SIZE /* errors of position, velocity and attitude: these affect each other */
#define REST (N - MOTION)

typedef long long integer;
typedef int generated(const double **arg, double **res, integer *iw, double *w, int mem);

generated eskf_transition, eskf_imu_transition, eskf_coast_transition, eskf_inject;
generated eskf_measure_position, eskf_measure_velocity, eskf_measure_attitude, eskf_measure_marker, eskf_measure_corners;
generated eskf_measure_specific_force;

/* P ← F P Fᵀ + diag(noise) dt with F = [A; 0 diag(keep)], A: MOTION x N. */
static void propagate(const double *P, const double *A, const double *keep, const double *noise, double dt,
                      double *out) {
    double AP[MOTION][N] = {{0}}, block[MOTION][MOTION] = {{0}};
    int used[N], moving = 0; /* errors that affect the motion: the columns of A that are not all zero */
    for (int j = 0; j < N; j++) {
        int any = 0;
        for (int i = 0; i < MOTION; i++) {
            const double a = A[i + MOTION * j];
            if (a != 0) {
                for (int c = 0; c < N; c++) AP[i][c] += a * P[j * N + c];
                any = 1;
            }
        }
        if (any) used[moving++] = j;
    }
    for (int n = 0; n < moving; n++) {
        const double *column = A + MOTION * used[n];
        for (int i = 0; i < MOTION; i++)
            for (int k = 0; k < MOTION; k++) block[i][k] += AP[i][used[n]] * column[k];
    }
    for (int i = 0; i < MOTION; i++) {
        for (int k = i; k < MOTION; k++) out[i * N + k] = out[k * N + i] = block[i][k];
        for (int c = 0; c < REST; c++)
            out[i * N + MOTION + c] = out[(MOTION + c) * N + i] = AP[i][MOTION + c] * keep[c];
    }
    for (int r = 0; r < REST; r++) {
        const double *row = P + (MOTION + r) * N + MOTION;
        double *to = out + (MOTION + r) * N + MOTION;
        for (int c = 0; c < REST; c++) to[c] = (keep[r] * keep[c]) * row[c];
    }
    for (int i = 0; i < N; i++) out[i * N + i] += noise[i] * dt;
}

/* Process noise of the disturbance, adapted to gusts.

   Indoors the disturbance changes by some tenths of a m/s² in a second, in gusty wind by several m/s². One fixed noise
   over-reacts in still air or lags in gusts. The size of single innovations does not distinguish the two cases: it
   comes mostly from the sensors' noise. Their direction does: when the process noise is too small, the estimate lags
   behind the truth and the innovations keep their sign. A random walk of intensity q² differs from its own low-pass of
   time constant τ by u with a variance of q² τ / 2, so 2 u² / τ is a sample of q². The noise uses the largest recent
   sample, which decays with FADE_S: it rises when a gust begins and stays between two gusts.

   d: the disturbance [m/s²]; memory: GUST_SIZE numbers, zeros at the start: the low-passed disturbance (3), q²
   horizontal and vertical [(m/s²)²/s], 1 once the memory is initialised; factor_max: largest factor on the variance of
   still air.
   Writes the memory dt later to next, and multiplies noise, the variances per second of still air, by the factors. */
#define LAG_S 0.3   /* τ; shorter than the gusts that matter, longer than the response of the filter */
#define FADE_S 2.0  /* time constant of the decay after a gust */
#define SHARE 0.5   /* of the largest sample: a chi-square of one degree of freedom peaks at several times its mean */
static void follow_gusts(const double *memory, const double *d, double factor_max, double dt, double *next,
                         double *noise) {
    const double share = fmin(1.0, dt / LAG_S), fade = exp(-dt / FADE_S), known = memory[5];
    double u[3];
    for (int i = 0; i < 3; i++) {
        u[i] = known ? d[i] - memory[i] : 0;
        next[i] = known ? memory[i] + share * u[i] : d[i];
    }
    next[3] = fmax(fade * memory[3], SHARE * (u[0] * u[0] + u[1] * u[1]) / LAG_S);
    next[4] = fmax(fade * memory[4], SHARE * 2 * u[2] * u[2] / LAG_S);
    next[5] = 1;
    const double sideways = fmin(fmax(1.0, next[3] / fmin(noise[0], noise[1])), factor_max);
    noise[0] *= sideways;
    noise[1] *= sideways;
    noise[2] *= fmin(fmax(1.0, next[4] / noise[2]), factor_max);
}

/* (filter state, command, parameters, rates, noise of still air, factor_max, dt) -> filter state */
int eskf_predict(const double **arg, double **res, integer *iw, double *w_, int mem) {
    (void)iw, (void)w_, (void)mem;
    const double *filter_state = arg[0], dt = *arg[6];
    double A[MOTION * N], keep[REST], noise[N], w[WORK_SIZE];
    const double *model_arg[] = {filter_state, arg[1], arg[2], arg[3], arg[6]};
    double *model_res[] = {res[0], A, keep};
    memcpy(noise, arg[4], sizeof noise);
    follow_gusts(filter_state + GUST, filter_state + DISTURBANCE, *arg[5], dt, res[0] + GUST,
                 noise + DISTURBANCE_ERROR);
    const int status = eskf_transition(model_arg, model_res, 0, w, 0);
    propagate(filter_state + COVARIANCE, A, keep, noise, dt, res[0] + COVARIANCE);
    return status;
}

/* (filter state, samples, count, rates, noise) -> filter state. A sample: duration, angular rate, specific force. */
int eskf_predict_imu(const double **arg, double **res, integer *iw, double *w_, int mem) {
    (void)iw, (void)w_, (void)mem;
    const int count = (int)*arg[2];
    double from[FILTER_STATE_SIZE], A[MOTION * N], keep[REST], w[WORK_SIZE];
    int status = 0;
    memcpy(res[0], arg[0], sizeof from);
    for (int i = 0; i < count && i < SAMPLES_MAX; i++) {
        const double *sample = arg[1] + i * (1 + IMU_SIZE);
        const double *model_arg[] = {from, sample + 1, arg[3], sample};
        double *model_res[] = {res[0], A, keep};
        memcpy(from, res[0], sizeof(double) * GUST);
        status |= eskf_imu_transition(model_arg, model_res, 0, w, 0);
        propagate(from + COVARIANCE, A, keep, arg[4], *sample, res[0] + COVARIANCE);
    }
    return status;
}

/* (filter state, rates, noise, dt) -> filter state: without a command the disturbance is not observable */
int eskf_predict_coast(const double **arg, double **res, integer *iw, double *w_, int mem) {
    (void)iw, (void)w_, (void)mem;
    const double *filter_state = arg[0];
    double A[MOTION * N], keep[REST], w[WORK_SIZE];
    const double *model_arg[] = {filter_state, arg[1], arg[3]};
    double *model_res[] = {res[0], A, keep};
    const int status = eskf_coast_transition(model_arg, model_res, 0, w, 0);
    propagate(filter_state + COVARIANCE, A, keep, arg[2], *arg[3], res[0] + COVARIANCE);
    memcpy(res[0] + GUST, filter_state + GUST, sizeof(double) * GUST_SIZE);
    return status;
}

/* P ← G P Gᵀ; G is J on the three errors that begin at `at`, and the identity elsewhere. J is column-major. */
static void turn(double *P, int at, const double *J) {
    double rows[3][N] = {{0}}, block[3][3] = {{0}};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++)
            for (int c = 0; c < N; c++) rows[i][c] += J[i + 3 * k] * P[(at + k) * N + c];
    for (int i = 0; i < 3; i++)
        for (int j = i; j < 3; j++) {
            for (int k = 0; k < 3; k++) block[i][j] += rows[i][at + k] * J[j + 3 * k];
            block[j][i] = block[i][j];
        }
    for (int i = 0; i < 3; i++)
        for (int c = 0; c < N; c++) P[(at + i) * N + c] = P[c * N + at + i] = rows[i][c];
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) P[(at + i) * N + at + j] = block[i][j];
}

/* P ← G P Gᵀ with δ_r ← δ_r + C δθ for the first CARRIED_SIZE errors, see `inject`. C is column-major. */
static void carry(double *P, const double *C) {
    double rows[CARRIED_SIZE][N];
    for (int r = 0; r < CARRIED_SIZE; r++) {
        memcpy(rows[r], P + r * N, sizeof rows[r]);
        for (int k = 0; k < 3; k++)
            for (int c = 0; c < N; c++) rows[r][c] += C[r + CARRIED_SIZE * k] * P[(ATTITUDE_ERROR + k) * N + c];
    }
    for (int r = 0; r < CARRIED_SIZE; r++) {
        for (int c = r; c < CARRIED_SIZE; c++) {
            double sum = rows[r][c];
            for (int k = 0; k < 3; k++) sum += rows[r][ATTITUDE_ERROR + k] * C[c + CARRIED_SIZE * k];
            P[r * N + c] = P[c * N + r] = sum;
        }
        for (int c = CARRIED_SIZE; c < N; c++) P[r * N + c] = P[c * N + r] = rows[r][c];
    }
}

/* (filter state, *measured, R) -> (ν, whitened, NIS, corrected filter state, matched, expected)

   m: size of ν; measured: number of measured arguments; order: indices of ν in the order of whitening. whitened has
   this order, the other outputs have the order of ν. For the adaptation, per axis: matched z_i (R z)_i with z = S⁻¹ ν,
   and its expected value (S⁻¹ R)_ii. */
static inline int update(generated *model, const int m, const int measured, const int *order, const double **arg,
                         double **res) {
    const double *x = arg[0], *P = arg[0] + COVARIANCE, *given_R = arg[1 + measured];
    double *nu = res[0], *whitened = res[1], *P_out = res[3] + COVARIANCE;
    double H[8 * N], W[8][N], S[8][8], L[8][8], R[8][8], w[WORK_SIZE];
    const double *model_arg[1 + MEASURED_MAX] = {x};
    double *model_res[] = {nu, H};
    for (int i = 0; i < measured; i++) model_arg[1 + i] = arg[1 + i];
    int status = model(model_arg, model_res, 0, w, 0);

    for (int i = 0; i < m; i++)
        for (int k = 0; k < m; k++) S[i][k] = R[i][k] = given_R[order[i > k ? i : k] + m * order[i > k ? k : i]];
    memset(W, 0, sizeof W); /* at first P Hᵀ, each of its columns is a row here */
    double h[N][8];         /* the columns of H that are not all zero */
    int seen[N], count = 0; /* and the error of each */
    for (int j = 0; j < N; j++) {
        int any = 0;
        for (int i = 0; i < m; i++) {
            const double a = h[count][i] = H[order[i] + m * j];
            if (a != 0) {
                for (int c = 0; c < N; c++) W[i][c] += a * P[j * N + c];
                any = 1;
            }
        }
        seen[count] = j;
        count += any;
    }
    for (int n = 0; n < count; n++)
        for (int i = 0; i < m; i++)
            for (int k = 0; k < m; k++) S[i][k] += W[i][seen[n]] * h[n][k];
    for (int j = 0; j < m; j++) { /* L Lᵀ = S; NaN where S has no root, and the gate rejects NaN */
        double d = S[j][j];
        for (int k = 0; k < j; k++) d -= L[j][k] * L[j][k];
        L[j][j] = sqrt(d);
        for (int i = j + 1; i < m; i++) {
            double sum = S[i][j];
            for (int k = 0; k < j; k++) sum -= L[i][k] * L[j][k];
            L[i][j] = sum / L[j][j];
        }
    }
    double nis = 0, correction[N] = {0};
    for (int i = 0; i < m; i++) { /* whitened = L⁻¹ ν, W = P Hᵀ L⁻ᵀ */
        double sum = nu[order[i]];
        for (int k = 0; k < i; k++) {
            sum -= L[i][k] * whitened[k];
            for (int c = 0; c < N; c++) W[i][c] -= L[i][k] * W[k][c];
        }
        const double scale = 1 / L[i][i];
        whitened[i] = sum * scale;
        nis += whitened[i] * whitened[i];
        for (int c = 0; c < N; c++) {
            W[i][c] *= scale;
            correction[c] += W[i][c] * whitened[i];
        }
    }
    *res[2] = nis;
    for (int c = CONSIDERED; c < CONSIDERED_END; c++) correction[c] = 0;
    double kept[CONSIDERED_END - CONSIDERED][CONSIDERED_END - CONSIDERED];
    for (int r = CONSIDERED; r < CONSIDERED_END; r++)
        memcpy(kept[r - CONSIDERED], P + r * N + CONSIDERED, sizeof kept[0]);
    for (int r = 0; r < N; r++)
        for (int c = 0; c < N; c++) {
            double sum = P[r * N + c];
            for (int i = 0; i < m; i++) sum -= W[i][r] * W[i][c];
            P_out[r * N + c] = sum;
        }
    for (int r = CONSIDERED; r < CONSIDERED_END; r++)
        memcpy(P_out + r * N + CONSIDERED, kept[r - CONSIDERED], sizeof kept[0]);
    memcpy(res[3] + GUST, arg[0] + GUST, sizeof(double) * GUST_SIZE);
    double C[CARRIED_SIZE * 3], J_M[9];
    const double *inject_arg[] = {x, correction};
    double *inject_res[] = {res[3], C, J_M};
    status |= eskf_inject(inject_arg, inject_res, 0, w, 0);
    turn(P_out, BUNDLE_ATTITUDE_ERROR, J_M);
    carry(P_out, C);

    double z[8], inverse[8][8]; /* z = L⁻ᵀ whitened, L⁻¹ */
    for (int i = m - 1; i >= 0; i--) {
        double sum = whitened[i];
        for (int k = i + 1; k < m; k++) sum -= L[k][i] * z[k];
        z[i] = sum / L[i][i];
    }
    for (int j = 0; j < m; j++)
        for (int i = j; i < m; i++) {
            double sum = i == j;
            for (int k = j; k < i; k++) sum -= L[i][k] * inverse[k][j];
            inverse[i][j] = sum / L[i][i];
        }
    for (int i = 0; i < m; i++) {
        double Rz = 0, expected = 0;
        for (int k = 0; k < m; k++) Rz += R[i][k] * z[k];
        for (int k = i; k < m; k++) { /* (S⁻¹ R)_ii = Σ_k (L⁻¹)_ki (L⁻¹ R)_ki */
            double LR = 0;
            for (int j = 0; j <= k; j++) LR += inverse[k][j] * R[j][i];
            expected += inverse[k][i] * LR;
        }
        res[4][order[i]] = z[i] * Rz;
        res[5][order[i]] = expected;
    }
    return status;
}

static const int GIVEN_ORDER[] = {0, 1, 2, 3, 4, 5, 6, 7};
static const int ROTATION_FIRST[] = {3, 4, 5, 0, 1, 2}; /* the whitened position is then conditional on the rotation */

#define SENSOR(name, size, measured, order)                                                     \
    int eskf_update_##name(const double **arg, double **res, integer *iw, double *w, int mem) { \
        (void)iw, (void)w, (void)mem;                                                           \
        return update(eskf_measure_##name, size, measured, order, arg, res);                    \
    }

SENSOR(position, 3, 1, GIVEN_ORDER)
SENSOR(velocity, 3, 1, GIVEN_ORDER)
SENSOR(attitude, 3, 1, GIVEN_ORDER)
SENSOR(marker, 6, 6, ROTATION_FIRST)
SENSOR(corners, 8, 5, GIVEN_ORDER)
SENSOR(specific_force, 3, 3, GIVEN_ORDER)
