/* The covariance algebra of the error-state Kalman filter, which is the same for every model.

   Residuals, measurement matrices, transitions and the injection of a correction come from acados_gen/eskf_model.py as
   generated functions (declared below, in CasADi's calling convention, which the functions here share). With S = H P Hᵀ
   + R = L Lᵀ and W = P Hᵀ L⁻ᵀ:  K ν = W L⁻¹ ν,  P corrected = P - W Wᵀ. This equals Joseph's form for this gain, is
   symmetric in every rounding, and takes a third of its time. The loops run over contiguous rows, so the compiler
   vectorises them; it cannot vectorise an expression that is written out number by number.

   The state of a bundle that is not the mission's is its pose, and while it is in sight a slow error. They come after the N
   errors of the models, which know one bundle; `exchange` puts another into its place.

   The sizes in capitals come from companion/estimation/layout.py as compiler flags. Every covariance is exactly
   symmetric, so its rows equal its columns. Matrices of generated functions are column-major. */

#include <math.h>
#include <string.h>

#define N ERROR_SIZE
#define MOTION MOTION_SIZE /* errors of position, velocity and attitude: these affect each other */
#define POSE POSE_SIZE
#define N_MAX ERROR_SIZE_MAX
#define M_MAX 8 /* largest size of a residual */

/* Loops over rows are twice as fast with wider registers, and have the same results. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif
#define INLINED static inline __attribute__((always_inline)) /* into a caller that is WIDE, with its constants */

typedef long long integer;
typedef int generated(const double **arg, double **res, integer *iw, double *w, int mem);

generated eskf_transition, eskf_imu_transition, eskf_coast_transition, eskf_inject, eskf_inject_bundle;
generated eskf_measure_position, eskf_measure_velocity, eskf_measure_attitude, eskf_measure_marker, eskf_measure_corners;
generated eskf_measure_specific_force, eskf_measure_plumb;

/* The parts of a filter state, see FilterStateIndex. */
typedef struct {
    int others, slow, n; /* further bundles, slow errors, rows of P */
    double *x, *gust, *poses, *slows, *P;
} parts;

static parts parts_of(double *filter_state) {
    parts s = {.others = (int)filter_state[0], .slow = (int)filter_state[1]};
    s.n = N + POSE * s.others + SLOW_SIZE * s.slow;
    s.x = filter_state + NOMINAL;
    s.gust = filter_state + GUST;
    s.poses = filter_state + REST;
    s.slows = s.poses + POSE_STATE_SIZE * s.others;
    s.P = s.slows + SLOW_SIZE * s.slow;
    return s;
}

/* P ← F P Fᵀ + diag(noise) dt with F = [A; 0 diag(keep)], A: MOTION x N. A bundle's pose stays, its slow error fades. */
WIDE static void propagate(parts s, const double *A, const double *core_keep, const double *noise, double dt) {
    const int n = s.n, slow = N + POSE * s.others;
    double *P = s.P, AP[MOTION][N_MAX], block[MOTION][MOTION] = {{0}}, keep[N_MAX];
    int used[N], moving = 0; /* errors that affect the motion: the columns of A that are not all zero */
    for (int i = 0; i < MOTION; i++)
        for (int c = 0; c < n; c++) AP[i][c] = 0;
    for (int j = 0; j < N; j++) {
        int any = 0;
        for (int i = 0; i < MOTION; i++) {
            const double a = A[i + MOTION * j];
            if (a != 0) {
                for (int c = 0; c < n; c++) AP[i][c] += a * P[j * n + c];
                any = 1;
            }
        }
        if (any) used[moving++] = j;
    }
    for (int u = 0; u < moving; u++) {
        const double *column = A + MOTION * used[u];
        for (int i = 0; i < MOTION; i++)
            for (int k = 0; k < MOTION; k++) block[i][k] += AP[i][used[u]] * column[k];
    }
    for (int i = MOTION; i < n; i++)
        keep[i] = i < N ? core_keep[i - MOTION] : i < slow ? 1 : core_keep[SLOW_ERROR - MOTION + (i - slow) % SLOW_SIZE];
    for (int i = 0; i < MOTION; i++)
        for (int k = i; k < MOTION; k++) P[i * n + k] = P[k * n + i] = block[i][k];
    for (int c = MOTION; c < n; c++)
        for (int i = 0; i < MOTION; i++) P[i * n + c] = P[c * n + i] = AP[i][c] * keep[c];
    for (int r = MOTION; r < n; r++) { /* among poses nothing changes */
        double *row = P + r * n;
        const int pose = r >= N && r < slow, first = pose ? N : n, next = pose ? slow : n;
        for (int c = MOTION; c < first; c++) row[c] = (keep[r] * keep[c]) * row[c];
        for (int c = next; c < n; c++) row[c] = (keep[r] * keep[c]) * row[c];
    }
    for (int i = 0; i < N; i++) P[i * n + i] += noise[i] * dt;
    for (int i = N; i < slow; i++) P[i * n + i] += noise[BUNDLE_ERROR + (i - N) % POSE] * dt;
    for (int i = slow; i < n; i++) P[i * n + i] += noise[SLOW_ERROR + (i - slow) % SLOW_SIZE] * dt;
    for (int i = 0; i < SLOW_SIZE * s.slow; i++) s.slows[i] *= keep[slow + i];
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
   Advances the memory by dt, and multiplies noise, the variances per second of still air, by the factors. */
#define LAG_S 0.3   /* τ; shorter than the gusts that matter, longer than the response of the filter */
#define FADE_S 2.0  /* time constant of the decay after a gust */
#define SHARE 0.5   /* of the largest sample: a chi-square of one degree of freedom peaks at several times its mean */
static void follow_gusts(double *memory, const double *d, double factor_max, double dt, double *noise) {
    const double share = fmin(1.0, dt / LAG_S), fade = exp(-dt / FADE_S), known = memory[5];
    double u[3];
    for (int i = 0; i < 3; i++) {
        u[i] = known ? d[i] - memory[i] : 0;
        memory[i] = known ? memory[i] + share * u[i] : d[i];
    }
    memory[3] = fmax(fade * memory[3], SHARE * (u[0] * u[0] + u[1] * u[1]) / LAG_S);
    memory[4] = fmax(fade * memory[4], SHARE * 2 * u[2] * u[2] / LAG_S);
    memory[5] = 1;
    const double sideways = fmin(fmax(1.0, memory[3] / fmin(noise[0], noise[1])), factor_max);
    noise[0] *= sideways;
    noise[1] *= sideways;
    noise[2] *= fmin(fmax(1.0, memory[4] / noise[2]), factor_max);
}

/* (command, parameters, rates, noise of still air, factor_max, dt) -> filter state */
int eskf_predict(const double **arg, double **res, integer *iw, double *w_, int mem) {
    (void)iw, (void)w_, (void)mem;
    const parts s = parts_of(res[0]);
    const double dt = *arg[5];
    double A[MOTION * N], keep[N - MOTION], noise[N], x[STATE_SIZE], w[WORK_SIZE];
    const double *model_arg[] = {s.x, arg[0], arg[1], arg[2], arg[5]};
    double *model_res[] = {x, A, keep};
    memcpy(noise, arg[3], sizeof noise);
    follow_gusts(s.gust, s.x + DISTURBANCE, *arg[4], dt, noise + DISTURBANCE_ERROR);
    const int status = eskf_transition(model_arg, model_res, 0, w, 0);
    memcpy(s.x, x, sizeof x);
    propagate(s, A, keep, noise, dt);
    return status;
}

/* (samples, count, rates, noise) -> filter state. A sample: duration, angular rate, specific force. */
int eskf_predict_imu(const double **arg, double **res, integer *iw, double *w_, int mem) {
    (void)iw, (void)w_, (void)mem;
    const parts s = parts_of(res[0]);
    const int count = (int)*arg[1];
    double A[MOTION * N], keep[N - MOTION], x[STATE_SIZE], w[WORK_SIZE];
    int status = 0;
    for (int i = 0; i < count && i < SAMPLES_MAX; i++) {
        const double *sample = arg[0] + i * (1 + IMU_SIZE);
        const double *model_arg[] = {s.x, sample + 1, arg[2], sample};
        double *model_res[] = {x, A, keep};
        status |= eskf_imu_transition(model_arg, model_res, 0, w, 0);
        memcpy(s.x, x, sizeof x);
        propagate(s, A, keep, arg[3], *sample);
    }
    return status;
}

/* (rates, noise, dt) -> filter state: without a command the disturbance is not observable */
int eskf_predict_coast(const double **arg, double **res, integer *iw, double *w_, int mem) {
    (void)iw, (void)w_, (void)mem;
    const parts s = parts_of(res[0]);
    double A[MOTION * N], keep[N - MOTION], x[STATE_SIZE], w[WORK_SIZE];
    const double *model_arg[] = {s.x, arg[0], arg[2]};
    double *model_res[] = {x, A, keep};
    const int status = eskf_coast_transition(model_arg, model_res, 0, w, 0);
    memcpy(s.x, x, sizeof x);
    propagate(s, A, keep, arg[1], *arg[2]);
    return status;
}

/* (*measured, R) -> (filter state, ν, whitened, NIS, matched, expected, gain); the filter state is only read

   m: size of ν; measured: number of measured arguments; order: indices of ν in the order of whitening. whitened has
   this order, the other outputs have the order of ν. For the adaptation, per axis: matched z_i (R z)_i with z = S⁻¹ ν,
   and its expected value (S⁻¹ R)_ii. gain: rows of W = P Hᵀ L⁻ᵀ, transposed, then the correction W L⁻¹ ν. */
INLINED int update(generated *model, const int m, const int measured, const int *order, const double **arg,
                   double **res) {
    const parts s = parts_of(res[0]);
    const int n = s.n;
    const double *P = s.P, *given_R = arg[measured];
    double *nu = res[1], *whitened = res[2], (*W)[N_MAX] = (double(*)[N_MAX])res[6], *correction = W[m];
    double H[M_MAX * N], S[M_MAX][M_MAX], L[M_MAX][M_MAX], R[M_MAX][M_MAX], w[WORK_SIZE];
    const double *model_arg[1 + MEASURED_MAX] = {s.x};
    double *model_res[] = {nu, H};
    for (int i = 0; i < measured; i++) model_arg[1 + i] = arg[i];
    const int status = model(model_arg, model_res, 0, w, 0);

    for (int i = 0; i < m; i++)
        for (int k = 0; k < m; k++) S[i][k] = R[i][k] = given_R[order[i > k ? i : k] + m * order[i > k ? k : i]];
    for (int i = 0; i <= m; i++) /* W is at first P Hᵀ, each of its columns is a row here */
        for (int c = 0; c < n; c++) W[i][c] = 0;
    double h[N][M_MAX];     /* the columns of H that are not all zero */
    int seen[N], count = 0; /* and the error of each */
    for (int j = 0; j < N; j++) {
        int any = 0;
        for (int i = 0; i < m; i++) {
            const double a = h[count][i] = H[order[i] + m * j];
            if (a != 0) {
                for (int c = 0; c < n; c++) W[i][c] += a * P[j * n + c];
                any = 1;
            }
        }
        seen[count] = j;
        count += any;
    }
    for (int u = 0; u < count; u++)
        for (int i = 0; i < m; i++)
            for (int k = 0; k < m; k++) S[i][k] += W[i][seen[u]] * h[u][k];
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
    double nis = 0;
    for (int i = 0; i < m; i++) { /* whitened = L⁻¹ ν, W = P Hᵀ L⁻ᵀ */
        double sum = nu[order[i]];
        for (int k = 0; k < i; k++) {
            sum -= L[i][k] * whitened[k];
            for (int c = 0; c < n; c++) W[i][c] -= L[i][k] * W[k][c];
        }
        const double scale = 1 / L[i][i];
        whitened[i] = sum * scale;
        nis += whitened[i] * whitened[i];
        for (int c = 0; c < n; c++) {
            W[i][c] *= scale;
            correction[c] += W[i][c] * whitened[i];
        }
    }
    *res[3] = nis;
    for (int c = CONSIDERED; c < CONSIDERED_END; c++) correction[c] = 0;

    double z[M_MAX], inverse[M_MAX][M_MAX]; /* z = L⁻ᵀ whitened, L⁻¹ */
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

#define SENSOR(name, size, measured, order)                                                          \
    WIDE int eskf_update_##name(const double **arg, double **res, integer *iw, double *w, int mem) { \
        (void)iw, (void)w, (void)mem;                                                                \
        return update(eskf_measure_##name, size, measured, order, arg, res);                         \
    }

SENSOR(position, 3, 1, GIVEN_ORDER)
SENSOR(velocity, 3, 1, GIVEN_ORDER)
SENSOR(attitude, 3, 1, GIVEN_ORDER)
SENSOR(marker, 6, 6, ROTATION_FIRST)
SENSOR(corners, 8, 5, GIVEN_ORDER)
SENSOR(specific_force, 3, 3, GIVEN_ORDER)
SENSOR(plumb, 2, 1, GIVEN_ORDER)

/* P ← D P Dᵀ, W ← W Dᵀ; D is J on the three errors that begin at `at`, and the identity elsewhere. J is column-major. */
static void turn(const parts s, double (*W)[N_MAX], int m, int at, const double *J) {
    double rows[3][N_MAX], block[3][3] = {{0}}, *P = s.P;
    const int n = s.n;
    for (int i = 0; i < 3; i++)
        for (int c = 0; c < n; c++)
            rows[i][c] = J[i] * P[at * n + c] + J[i + 3] * P[(at + 1) * n + c] + J[i + 6] * P[(at + 2) * n + c];
    for (int i = 0; i < 3; i++)
        for (int j = i; j < 3; j++) {
            for (int k = 0; k < 3; k++) block[i][j] += rows[i][at + k] * J[j + 3 * k];
            block[j][i] = block[i][j];
        }
    for (int c = 0; c < n; c++)
        for (int i = 0; i < 3; i++) P[(at + i) * n + c] = P[c * n + at + i] = rows[i][c];
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) P[(at + i) * n + at + j] = block[i][j];
    for (int r = 0; r < m; r++) {
        double *w = W[r] + at, before[3] = {w[0], w[1], w[2]};
        for (int i = 0; i < 3; i++) w[i] = J[i] * before[0] + J[i + 3] * before[1] + J[i + 6] * before[2];
    }
}

/* P ← G (P - W Wᵀ) Gᵀ with G = I + C E, E the rows of the identity for the attitude's three errors, see `inject`.

   With Q = (P - W Wᵀ) Eᵀ and U = Q + C E Q / 2 this is P - W Wᵀ + U Cᵀ + C Uᵀ. */
WIDE static void downdate(const parts s, double (*W)[N_MAX], int m, double (*C)[N_MAX]) {
    const int n = s.n;
    double *P = s.P, U[3][N_MAX];
    for (int k = 0; k < 3; k++) {
        for (int c = 0; c < n; c++) U[k][c] = P[(ATTITUDE_ERROR + k) * n + c];
        for (int i = 0; i < m; i++) {
            const double a = W[i][ATTITUDE_ERROR + k];
            for (int c = 0; c < n; c++) U[k][c] -= a * W[i][c];
        }
    }
    double half[3][3];
    for (int k = 0; k < 3; k++)
        for (int l = 0; l < 3; l++) half[k][l] = U[k][ATTITUDE_ERROR + l] / 2;
    for (int k = 0; k < 3; k++)
        for (int c = 0; c < n; c++) U[k][c] += half[k][0] * C[0][c] + half[k][1] * C[1][c] + half[k][2] * C[2][c];
    for (int r = 0; r < n; r++) {
        double *row = P + r * n;
        for (int i = 0; i < m; i++) {
            const double a = W[i][r];
            for (int c = r; c < n; c++) row[c] -= a * W[i][c];
        }
        const double u0 = U[0][r], u1 = U[1][r], u2 = U[2][r], c0 = C[0][r], c1 = C[1][r], c2 = C[2][r];
        for (int c = r; c < n; c++)
            row[c] += u0 * C[0][c] + u1 * C[1][c] + u2 * C[2][c] + c0 * U[0][c] + c1 * U[1][c] + c2 * U[2][c];
    }
    for (int r = 0; r < n; r++)
        for (int c = r + 1; c < n; c++) P[c * n + r] = P[r * n + c];
}

/* Below this rotation [rad] the matrix J of a further bundle is the identity to 5e-5, and twenty of them cost a quarter of the
   update. */
#define SMALL_TURN 1e-4

/* (size of ν, gain) -> filter state, corrected as the last `update` has found */
int eskf_correct(const double **arg, double **res, integer *iw, double *w_, int mem) {
    (void)iw, (void)w_, (void)mem;
    const parts s = parts_of(res[0]);
    const int m = (int)*arg[0], n = s.n, considered = CONSIDERED_END - CONSIDERED;
    double W[M_MAX + 1][N_MAX], C[3][N_MAX] = {{0}}, core[CARRIED_SIZE * 3], J[9], x[STATE_SIZE], w[WORK_SIZE];
    memcpy(W, arg[1], sizeof(double) * (m + 1) * N_MAX);
    double kept[CONSIDERED_END - CONSIDERED][CONSIDERED_END - CONSIDERED];
    for (int r = 0; r < considered; r++)
        memcpy(kept[r], s.P + (CONSIDERED + r) * n + CONSIDERED, sizeof kept[0]);
    const double *correction = W[m], *inject_arg[] = {s.x, correction};
    double *inject_res[] = {x, core, J};
    int status = eskf_inject(inject_arg, inject_res, 0, w, 0);
    turn(s, W, m, BUNDLE_ERROR + 3, J);
    for (int r = 0; r < CARRIED_SIZE; r++)
        for (int k = 0; k < 3; k++) C[k][r] = core[r + CARRIED_SIZE * k];
    for (int b = 0; b < s.others; b++) {
        const int at = N + POSE * b;
        double pose[POSE_STATE_SIZE], carried[POSE * 3];
        const double *bundle_arg[] = {s.x + ATTITUDE, s.poses + POSE_STATE_SIZE * b, correction + at};
        double *bundle_res[] = {pose, carried, J};
        status |= eskf_inject_bundle(bundle_arg, bundle_res, 0, w, 0);
        memcpy(s.poses + POSE_STATE_SIZE * b, pose, sizeof pose);
        const double *angle = correction + at + 3;
        if (angle[0] * angle[0] + angle[1] * angle[1] + angle[2] * angle[2] > SMALL_TURN * SMALL_TURN)
            turn(s, W, m, at + 3, J);
        for (int r = 0; r < POSE; r++)
            for (int k = 0; k < 3; k++) C[k][at + r] = carried[r + POSE * k];
    }
    for (int i = 0; i < SLOW_SIZE * s.slow; i++) s.slows[i] += correction[N + POSE * s.others + i];
    memcpy(s.x, x, sizeof x);
    downdate(s, W, m, C);
    for (int r = 0; r < considered; r++)
        memcpy(s.P + (CONSIDERED + r) * n + CONSIDERED, kept[r], sizeof kept[0]);
    return status;
}

static void swap(double *a, double *b, int count, int stride) {
    for (int i = 0; i < count; i++) {
        const double kept = a[i * stride];
        a[i * stride] = b[i * stride];
        b[i * stride] = kept;
    }
}

/* (number of a further bundle's pose, of its slow error) -> filter state in which it has the place of the mission's */
int eskf_exchange(const double **arg, double **res, integer *iw, double *w, int mem) {
    (void)iw, (void)w, (void)mem;
    const parts s = parts_of(res[0]);
    const int pose = (int)*arg[0], slow = (int)*arg[1], n = s.n;
    swap(s.x + BUNDLE_STATE, s.poses + POSE_STATE_SIZE * pose, POSE_STATE_SIZE, 1);
    swap(s.x + SLOW_STATE, s.slows + SLOW_SIZE * slow, SLOW_SIZE, 1);
    for (int i = 0; i < POSE + SLOW_SIZE; i++) {
        const int own = i < POSE ? BUNDLE_ERROR + i : SLOW_ERROR + i - POSE;
        const int other = i < POSE ? N + POSE * pose + i : N + POSE * s.others + SLOW_SIZE * slow + i - POSE;
        swap(s.P + own * n, s.P + other * n, n, 1);
        swap(s.P + own, s.P + other, n, n);
    }
    return 0;
}
