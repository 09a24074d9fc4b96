/* The covariance algebra of the error-state Kalman filter: what is the same for every model.

   Residuals, measurement matrices, transitions and the injection of a correction come from acados_gen/eskf_model.py as
   generated functions (declared below, in CasADi's calling convention, which the functions here share). With S = H P Hᵀ
   + R = L Lᵀ and W = P Hᵀ L⁻ᵀ:  K ν = W L⁻¹ ν,  P corrected = P - W Wᵀ,  which equals Joseph's form for this gain, is
   symmetric in every rounding, and takes a third of its time. Plain loops over rows that lie together: the compiler
   turns them into vector instructions, which it cannot do for an expression written out number by number.

   The sizes in capitals come from companion/estimation/layout.py by way of the compiler's flags. Every covariance is exactly
   symmetric, so rows and columns are one. Matrices of generated functions are by columns. */

#include <math.h>
#include <string.h>

#define N ERROR_SIZE
#define MOTION MOTION_SIZE /* position, velocity, attitude: the errors that move each other */
#define REST (N - MOTION)

typedef long long integer;
typedef int generated(const double **arg, double **res, integer *iw, double *w, int mem);

generated eskf_transition, eskf_coast_transition, eskf_inject;
generated eskf_measure_position, eskf_measure_velocity, eskf_measure_attitude, eskf_measure_marker, eskf_measure_corners;

/* P ← F P Fᵀ + diag(noise) dt with F = [A; 0 diag(keep)], A: MOTION x N. */
static void propagate(const double *P, const double *A, const double *keep, const double *noise, double dt,
                      double *out) {
    double AP[MOTION][N] = {{0}}, block[MOTION][MOTION] = {{0}};
    int used[N], moving = 0; /* errors that move others: the columns of A that are not all zero */
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

/* How restless the air is: the disturbance's process noise follows what the disturbance is seen to do.

   In a hall the disturbance changes by some tenths of a m/s² in a second, in a gusty wind by several. One noise for both
   is either slow in the wind or nervous in the hall. The size of single innovations does not tell the two apart: it is
   the sensors' noise, mostly. Their direction does: when the noise is too small the estimate runs after the truth,
   always the same way. A random walk of intensity q² leaves the low-pass of itself, of time constant τ, by u with a
   variance of q² τ / 2, so 2 u² / τ is a sample of q². The noise takes the largest of those samples of late, fading over
   FADE_S: a gust is answered when it begins, and remembered between two of them.

   d: the disturbance [m/s²]; memory: GUST_SIZE numbers, zeros in the beginning: the low-passed disturbance, q² sideways
   and up and down [(m/s²)²/s], whether there is a memory; most: how many times the variance of still air it may be.
   Writes the memory dt later, and the variances per second over those of still air. */
#define LAG_S 0.3   /* τ; gusts that matter last longer, the filter answers sooner */
#define FADE_S 2.0  /* in which a gust is forgotten */
#define SHARE 0.5   /* of the largest sample: chi-square of one has peaks of several times its mean */
static void follow_gusts(const double *memory, const double *d, double most, double dt, double *next, double *noise) {
    const double share = fmin(1.0, dt / LAG_S), fade = exp(-dt / FADE_S), known = memory[5];
    double u[3];
    for (int i = 0; i < 3; i++) {
        u[i] = known ? d[i] - memory[i] : 0;
        next[i] = known ? memory[i] + share * u[i] : d[i];
    }
    next[3] = fmax(fade * memory[3], SHARE * (u[0] * u[0] + u[1] * u[1]) / LAG_S);
    next[4] = fmax(fade * memory[4], SHARE * 2 * u[2] * u[2] / LAG_S);
    next[5] = 1;
    const double sideways = fmin(fmax(1.0, next[3] / fmin(noise[0], noise[1])), most);
    noise[0] *= sideways;
    noise[1] *= sideways;
    noise[2] *= fmin(fmax(1.0, next[4] / noise[2]), most);
}

/* (belief, command, parameters, rates, noise of still air, most, dt) -> belief */
int eskf_predict(const double **arg, double **res, integer *iw, double *w_, int mem) {
    (void)iw, (void)w_, (void)mem;
    const double *belief = arg[0], dt = *arg[6];
    double A[MOTION * N], keep[REST], noise[N], w[WORK_SIZE];
    const double *model_arg[] = {belief, arg[1], arg[2], arg[3], arg[6]};
    double *model_res[] = {res[0], A, keep};
    memcpy(noise, arg[4], sizeof noise);
    follow_gusts(belief + GUST, belief + DISTURBANCE, *arg[5], dt, res[0] + GUST, noise + DISTURBANCE_ERROR);
    const int status = eskf_transition(model_arg, model_res, 0, w, 0);
    propagate(belief + COVARIANCE, A, keep, noise, dt, res[0] + COVARIANCE);
    return status;
}

/* (belief, rates, noise, dt) -> belief: without a command the disturbance cannot be seen */
int eskf_predict_coast(const double **arg, double **res, integer *iw, double *w_, int mem) {
    (void)iw, (void)w_, (void)mem;
    const double *belief = arg[0];
    double A[MOTION * N], keep[REST], w[WORK_SIZE];
    const double *model_arg[] = {belief, arg[1], arg[3]};
    double *model_res[] = {res[0], A, keep};
    const int status = eskf_coast_transition(model_arg, model_res, 0, w, 0);
    propagate(belief + COVARIANCE, A, keep, arg[2], *arg[3], res[0] + COVARIANCE);
    memcpy(res[0] + GUST, belief + GUST, sizeof(double) * GUST_SIZE);
    return status;
}

/* P ← G P Gᵀ for a G that is J on the three errors from `at` on and else the identity; J by columns. */
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

/* (belief, *measured, R) -> (ν, whitened, NIS, belief corrected, matched, expected); m: size of ν, measured: how many
   arguments. turned: which number of ν comes first, second, …; whitened has that order, the other outputs have
   ν's own. For the adaptation, per axis: matched z_i (R z)_i with z = S⁻¹ ν, and its expected value (S⁻¹ R)_ii. */
static inline int update(generated *model, const int m, const int measured, const int *turned, const double **arg,
                         double **res) {
    const double *x = arg[0], *P = arg[0] + COVARIANCE, *given_R = arg[1 + measured];
    double *nu = res[0], *whitened = res[1], *P_out = res[3] + COVARIANCE;
    double H[8 * N], W[8][N], S[8][8], L[8][8], R[8][8], w[WORK_SIZE];
    const double *model_arg[1 + MEASURED_MAX] = {x};
    double *model_res[] = {nu, H};
    for (int i = 0; i < measured; i++) model_arg[1 + i] = arg[1 + i];
    int status = model(model_arg, model_res, 0, w, 0);

    for (int i = 0; i < m; i++)
        for (int k = 0; k < m; k++) S[i][k] = R[i][k] = given_R[turned[i > k ? i : k] + m * turned[i > k ? k : i]];
    memset(W, 0, sizeof W); /* first P Hᵀ, a row here for each of its columns */
    double h[N][8];         /* the columns of H that are not all zero, */
    int seen[N], count = 0; /* and of which error each is */
    for (int j = 0; j < N; j++) {
        int any = 0;
        for (int i = 0; i < m; i++) {
            const double a = h[count][i] = H[turned[i] + m * j];
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
    for (int j = 0; j < m; j++) { /* L Lᵀ = S; where that has no root: not a number, and the gate rejects it */
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
        double sum = nu[turned[i]];
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
    for (int r = 0; r < N; r++)
        for (int c = 0; c < N; c++) {
            double sum = P[r * N + c];
            for (int i = 0; i < m; i++) sum -= W[i][r] * W[i][c];
            P_out[r * N + c] = sum;
        }
    memcpy(res[3] + GUST, arg[0] + GUST, sizeof(double) * GUST_SIZE);
    double J[9], J_M[9];
    const double *inject_arg[] = {x, correction};
    double *inject_res[] = {res[3], J, J_M};
    status |= eskf_inject(inject_arg, inject_res, 0, w, 0);
    turn(P_out, ATTITUDE_ERROR, J);
    turn(P_out, BUNDLE_ATTITUDE_ERROR, J_M);

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
        res[4][turned[i]] = z[i] * Rz;
        res[5][turned[i]] = expected;
    }
    return status;
}

static const int STRAIGHT[] = {0, 1, 2, 3, 4, 5, 6, 7};
static const int ROTATION_FIRST[] = {3, 4, 5, 0, 1, 2}; /* its whitened position is then given its rotation */

#define SENSOR(name, size, measured, turned)                                                    \
    int eskf_update_##name(const double **arg, double **res, integer *iw, double *w, int mem) { \
        (void)iw, (void)w, (void)mem;                                                           \
        return update(eskf_measure_##name, size, measured, turned, arg, res);                   \
    }

SENSOR(position, 3, 1, STRAIGHT)
SENSOR(velocity, 3, 1, STRAIGHT)
SENSOR(attitude, 3, 1, STRAIGHT)
SENSOR(marker, 6, 4, ROTATION_FIRST)
SENSOR(corners, 8, 4, STRAIGHT)
