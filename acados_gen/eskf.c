/* The covariance algebra of the error-state Kalman filter: what is the same for every model.

   Residuals, measurement matrices, transitions and the injection of a correction come from acados_gen/eskf_model.py as
   generated functions (declared below, in CasADi's calling convention, which the functions here share). With S = H P Hᵀ
   + R = L Lᵀ and W = P Hᵀ L⁻ᵀ:  K ν = W L⁻¹ ν,  P corrected = P - W Wᵀ,  which equals Joseph's form for this gain, is
   symmetric in every rounding, and takes a third of its time. Plain loops over rows that lie together: the compiler
   turns them into vector instructions, which it cannot do for an expression written out number by number.

   The sizes in capitals come from acados_gen/eskf_layout.py by way of the compiler's flags. Every covariance is exactly
   symmetric, so rows and columns are one. Matrices of generated functions are by columns. */

#include <math.h>
#include <string.h>

#define N ERROR_SIZE
#define MOTION MOTION_SIZE /* position, velocity, attitude: the errors that move each other */
#define REST (N - MOTION)
#define ARGUMENTS_MAX 8

typedef long long integer;
typedef int generated(const double **arg, double **res, integer *iw, double *w, int mem);

generated eskf_transition, eskf_coast_transition, eskf_inject;
generated eskf_measure_position, eskf_measure_velocity, eskf_measure_attitude, eskf_measure_marker, eskf_measure_corners;

/* P ← F P Fᵀ + diag(noise) dt with F = [A; 0 diag(keep)], A: MOTION x N. */
static void propagate(const double *P, const double *A, const double *keep, const double *noise, double dt,
                      double *out) {
    double AP[MOTION][N] = {{0}};
    for (int j = 0; j < N; j++)
        for (int i = 0; i < MOTION; i++) {
            const double a = A[i + MOTION * j];
            if (a != 0)
                for (int c = 0; c < N; c++) AP[i][c] += a * P[j * N + c];
        }
    for (int i = 0; i < MOTION; i++) {
        for (int k = i; k < MOTION; k++) {
            double sum = 0;
            for (int j = 0; j < N; j++) sum += AP[i][j] * A[k + MOTION * j];
            out[i * N + k] = out[k * N + i] = sum;
        }
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

/* (x, P, *inputs, noise, dt) -> (x, P); the model is called with (x, *inputs, dt). */
static int predict(generated *model, int inputs, const double **arg, double **res) {
    double A[MOTION * N], keep[REST], w[WORK_SIZE];
    const double *model_arg[ARGUMENTS_MAX] = {arg[0]};
    double *model_res[] = {res[0], A, keep};
    for (int i = 0; i < inputs; i++) model_arg[1 + i] = arg[2 + i];
    model_arg[1 + inputs] = arg[3 + inputs];
    const int status = model(model_arg, model_res, 0, w, 0);
    propagate(arg[1], A, keep, arg[2 + inputs], *arg[3 + inputs], res[1]);
    return status;
}

int eskf_predict(const double **arg, double **res, integer *iw, double *w, int mem) {
    (void)iw, (void)w, (void)mem;
    return predict(eskf_transition, 3, arg, res);
}

int eskf_predict_coast(const double **arg, double **res, integer *iw, double *w, int mem) {
    (void)iw, (void)w, (void)mem;
    return predict(eskf_coast_transition, 1, arg, res);
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

/* (x, P, *measured, R) -> (ν, whitened, NIS, x corrected, P corrected, matched, expected); m: size of ν, measured: how
   many arguments. turned: which number of ν comes first, second, …; whitened has that order, the other outputs have
   ν's own. For the adaptation, per axis: matched z_i (R z)_i with z = S⁻¹ ν, and its expected value (S⁻¹ R)_ii. */
static inline int update(generated *model, const int m, const int measured, const int *turned, const double **arg,
                         double **res) {
    const double *x = arg[0], *P = arg[1], *given_R = arg[2 + measured];
    double *nu = res[0], *whitened = res[1], *P_out = res[4];
    double H[8 * N], W[8][N], S[8][8], L[8][8], R[8][8], w[WORK_SIZE];
    const double *model_arg[ARGUMENTS_MAX] = {x};
    double *model_res[] = {nu, H};
    for (int i = 0; i < measured; i++) model_arg[1 + i] = arg[2 + i];
    int status = model(model_arg, model_res, 0, w, 0);

    memset(W, 0, sizeof W); /* first P Hᵀ, a row here for each of its columns */
    for (int j = 0; j < N; j++)
        for (int i = 0; i < m; i++) {
            const double h = H[turned[i] + m * j];
            if (h != 0)
                for (int c = 0; c < N; c++) W[i][c] += h * P[j * N + c];
        }
    for (int i = 0; i < m; i++)
        for (int k = 0; k <= i; k++) {
            double sum = R[i][k] = R[k][i] = given_R[turned[i] + m * turned[k]];
            for (int j = 0; j < N; j++) sum += W[i][j] * H[turned[k] + m * j];
            S[i][k] = sum;
        }
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
    memcpy(P_out, P, sizeof(double) * N * N);
    for (int r = 0; r < N; r++)
        for (int i = 0; i < m; i++) {
            const double a = W[i][r];
            for (int c = 0; c < N; c++) P_out[r * N + c] -= a * W[i][c];
        }
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
        res[5][turned[i]] = z[i] * Rz;
        res[6][turned[i]] = expected;
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
