/* Interface of the generated solver: one call per cycle.
 *
 * acados' own interface sets references, parameters and initial guesses field by field and node by node; from Python
 * these calls take longer than the solution. Here all data of a cycle is in flat arrays, which the caller allocates
 * once:
 *
 *   x0          STATE           state at the time the first input acts: p_W, v_W, roll, pitch, yaw
 *   references  (N+1) x ROW     rows x_r, u_r; only x_r is used of the last row
 *   parameters  (N+1) x PARAM   rows of flight_model.PARAMETERS, disturbance_W, yaw rate
 *   plane       4               n_W, c: n_W . p_W >= c (soft); n_W = 0 is no plane
 *   inputs      N x NU          the plan
 *   states      (N+1) x STATE
 *   info        2               solver time [s] (acados' own timer), iterations of the QP solver
 *
 * The state of this interface contains the heading, the state of the problem (ocp.py) does not: the heading is
 * integrated from the yaw rates.
 *
 * No function here allocates memory after nmpc_create, and none is thread safe.
 */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "acados/utils/types.h"
#include "acados_c/ocp_nlp_interface.h"
#include "acados_solver_flight_nmpc.h"

enum {
    N = FLIGHT_NMPC_N,
    NX = FLIGHT_NMPC_NX,
    NU = FLIGHT_NMPC_NU,
    NP = FLIGHT_NMPC_NP,
    NY = FLIGHT_NMPC_NY,
    YAW = NX, /* its index in a state */
    STATE = NX + 1,
    ROW = STATE + NU,
    PARAM = NP - 1, /* the problem has the heading in addition */
    YAW_RATE = PARAM - 1,
    NTILT = FLIGHT_NMPC_NBX,
    NROWS = FLIGHT_NMPC_NG, /* speed, plane */
    /* Real-time iterations from a cold start. The problem is nearly linear: the third has no visible effect. */
    COLD_ITERATIONS = 3,
    QP_COLD = 0,
    QP_FROM_MULTIPLIERS = 2, /* the QP solver applies its own lower limit to them */
    STATISTICS_MAX = 64,
    MULTIPLIERS_MAX = 2 * (NU + NX + NROWS) + 2 * (NTILT + NROWS),
};

/* Cost of a violation e of a soft bound: linear e + quadratic e^2 / 2, e in rad, m/s, m. Far above the tracking cost,
 * but finite, so that a solution always exists. For speed and plane the quadratic part dominates, so the violation
 * scales with the reference error: with a reference one metre behind the plane the aircraft violates it by 2.5 cm. A
 * linear part that held the bound exactly would command full tilt for every centimetre of noise. */
static const double TILT_SLACK_COST[2] = {100.0, 1000.0}, ROW_SLACK_COST[2] = {30.0, 30000.0};
static const double FAR_M = 20.0;         /* more than the change of a plan from one cycle to the next */
static const double CURVATURE_MIN = 1e-3; /* share of the velocity weights; less has no effect */
static const double SWING_MARGIN = 1.5;    /* 1 is neutral */
static const double SLOW_M_S = 1e-3;      /* below this speed the direction of a velocity is noise */

typedef struct {
    flight_nmpc_solver_capsule *capsule;
    ocp_nlp_config *config;
    ocp_nlp_dims *dims;
    ocp_nlp_in *in;
    ocp_nlp_out *out;
    ocp_nlp_solver *solver;
    double running[NY], terminal[NX];     /* diagonal weights */
    double roll_max;                      /* bound of the roll command [rad] */
    double speed_max;                     /* [m/s] */
    int has_tilt[N + 1], has_rows[N + 1]; /* nodes with soft rows: of tilt, of speed and plane */
    int curved[N + 1];                    /* the node's weights contain an addition */
    int cold;                             /* no plan to start from */
} nmpc;

void nmpc_free(nmpc *self) {
    if (self == NULL) return;
    if (self->capsule != NULL) {
        if (self->solver != NULL) flight_nmpc_acados_free(self->capsule);
        flight_nmpc_acados_free_capsule(self->capsule);
    }
    free(self);
}

/* Find the nodes with soft rows and set their costs. The order of slacks is tilt, speed, plane. */
static void find_rows(nmpc *self) {
    static const char *fields[2][2] = {{"zl", "zu"}, {"Zl", "Zu"}};
    for (int k = 1; k <= N; k++) {
        const int tilt = ocp_nlp_dims_get_from_attr(self->config, self->dims, self->out, k, "lbx");
        const int rows = ocp_nlp_dims_get_from_attr(self->config, self->dims, self->out, k, "lg");
        self->has_tilt[k] = tilt > 0;
        self->has_rows[k] = rows > 0;
        for (int power = 0; power < 2; power++) {
            double costs[NTILT + NROWS];
            for (int i = 0; i < tilt + rows; i++) costs[i] = (i < tilt ? TILT_SLACK_COST : ROW_SLACK_COST)[power];
            for (int side = 0; side < 2; side++)
                ocp_nlp_cost_model_set(self->config, self->dims, self->in, k, fields[power][side], costs);
        }
    }
}

nmpc *nmpc_create(void) {
    nmpc *self = calloc(1, sizeof(nmpc));
    if (self == NULL) return NULL;
    self->capsule = flight_nmpc_acados_create_capsule();
    if (self->capsule == NULL || flight_nmpc_acados_create(self->capsule) != 0) {
        nmpc_free(self);
        return NULL;
    }
    self->config = flight_nmpc_acados_get_nlp_config(self->capsule);
    self->dims = flight_nmpc_acados_get_nlp_dims(self->capsule);
    self->in = flight_nmpc_acados_get_nlp_in(self->capsule);
    self->out = flight_nmpc_acados_get_nlp_out(self->capsule);
    self->solver = flight_nmpc_acados_get_nlp_solver(self->capsule);
    self->cold = 1;
    find_rows(self);
    return self;
}

/* sizes: N, STATE, NU, PARAM */
void nmpc_sizes(int *sizes) {
    sizes[0] = N;
    sizes[1] = STATE;
    sizes[2] = NU;
    sizes[3] = PARAM;
}

/* A row of state and inputs without the heading, which is not part of the problem. */
static void without_yaw(const double *row, double *y) {
    memcpy(y, row, NX * sizeof(double));
    memcpy(y + NX, row + STATE, NU * sizeof(double));
}

/* Diagonal weights of the running (ROW) and the terminal cost (STATE). */
void nmpc_set_weights(nmpc *self, const double *running, const double *terminal) {
    double W[NY * NY] = {0}, W_e[NX * NX] = {0};
    without_yaw(running, self->running);
    memcpy(self->terminal, terminal, sizeof self->terminal);
    for (int i = 0; i < NY; i++) W[i * (NY + 1)] = self->running[i];
    for (int i = 0; i < NX; i++) W_e[i * (NX + 1)] = self->terminal[i];
    for (int k = 0; k < N; k++) ocp_nlp_cost_model_set(self->config, self->dims, self->in, k, "W", W);
    ocp_nlp_cost_model_set(self->config, self->dims, self->in, N, "W", W_e);
}

/* Hard bounds of the inputs (NU each) and the soft bounds of |roll| and |pitch| [rad] and of |v| [m/s]. */
void nmpc_set_bounds(nmpc *self, const double *input_min, const double *input_max, double tilt_max, double speed_max) {
    double low[NTILT], high[NTILT];
    for (int i = 0; i < NTILT; i++) {
        low[i] = -tilt_max;
        high[i] = tilt_max;
    }
    for (int k = 0; k < N; k++) {
        ocp_nlp_constraints_model_set(self->config, self->dims, self->in, k, "lbu", (void *)input_min);
        ocp_nlp_constraints_model_set(self->config, self->dims, self->in, k, "ubu", (void *)input_max);
    }
    for (int k = 1; k <= N; k++) {
        if (!self->has_tilt[k]) continue;
        ocp_nlp_constraints_model_set(self->config, self->dims, self->in, k, "lbx", low);
        ocp_nlp_constraints_model_set(self->config, self->dims, self->in, k, "ubx", high);
    }
    self->roll_max = input_max[1];
    self->speed_max = speed_max;
}

/* Multipliers of a node's bounds and rows in the last solution: lower (commands, tilt, rows), then upper. */
static int multipliers(nmpc *self, int k, double *values) {
    const int bounds = (k < N ? NU : 0) + (k == 0 ? NX : self->has_tilt[k] ? NTILT : 0);
    ocp_nlp_out_get(self->config, self->dims, self->out, k, "lam", values);
    return bounds;
}

/* Add the curvature of |v|, times its multiplier, to the weights of the velocity, without a change of the cost's
 * gradient at the plan; returns 0 where there is none. Without the curvature the linearised limit does not restrict the
 * velocity across the plan's velocity, and the velocity oscillates from cycle to cycle.
 *
 * With a = multiplier / |v|, e = v / |v|, D = W's velocity part: W+ = D + a (I - e e'), and the reference r+ with
 * the same gradient solves W+ (v - r+) = D (v - r), by Sherman and Morrison. */
static int add_speed_curvature(nmpc *self, int k, const double *v, int rows, double *W, double *y) {
    const double *weights = k < N ? self->running : self->terminal;
    const double speed = sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
    if (speed <= SLOW_M_S) return 0;
    double values[MULTIPLIERS_MAX], e[3], inverse[3], right[3], definite = 0.0, along = 0.0;
    const int bounds = multipliers(self, k, values);
    const double multiplier = values[2 * bounds + NROWS]; /* of the upper bound of the first row */
    const double a = multiplier / (speed * (k < N ? self->in->Ts[k] : 1.0));
    for (int i = 0; i < 3; i++) {
        e[i] = v[i] / speed;
        inverse[i] = 1.0 / (weights[3 + i] + a);
        right[i] = weights[3 + i] * (v[i] - y[3 + i]);
        definite += e[i] * e[i] * weights[3 + i] * inverse[i];
        along += e[i] * inverse[i] * right[i];
    }
    if (a <= CURVATURE_MIN * (weights[3] + weights[4] + weights[5]) || definite <= 0.0) return 0;
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 3; j++) W[(3 + i) * rows + 3 + j] += a * ((i == j) - e[i] * e[j]);
        y[3 + i] = v[i] - inverse[i] * (right[i] + a * e[i] * along / definite);
    }
    return 1;
}

/* Add to the weight of the pitch command what makes a swing of pitch at the bound of roll useless; returns 0 where there is
 * none.
 *
 * Where roll is at its bound t, lift in balance, T cos(roll) cos(pitch) = g, gives the force T sin(roll) = g tan(t) / cos(pitch):
 * pitch takes lift, which allows more thrust and with it more force against the wind. To second order in pitch the cost
 * falls by ½ λ sin(t) cos(t) pitch², λ the multiplier of roll's bound. The linearised dynamics do not contain this term:
 * they promise lift from one bound of pitch when the plan is at the other, so the plan swings between them in every
 * cycle. The added weight is SWING_MARGIN times the term. In a corner the two multipliers compensate. At the bound of
 * pitch the force T sin(pitch) cos(roll) = g tan(t) does not depend on roll. */
static int add_swing_weight(nmpc *self, int k, double *W, double *y) {
    enum { ROLL = 1, PITCH = 2, AT = NX + PITCH };
    double values[MULTIPLIERS_MAX];
    const double *lower = values, *upper = values + multipliers(self, k, values) + (self->has_rows[k] ? NROWS : 0);
    const double lambda = lower[ROLL] + upper[ROLL] - lower[PITCH] - upper[PITCH];
    const double more = SWING_MARGIN * sin(self->roll_max) * cos(self->roll_max) * lambda / self->in->Ts[k];
    const double weight = self->running[AT];
    if (more <= CURVATURE_MIN * weight) return 0;
    W[AT * (NY + 1)] += more;
    y[AT] *= weight / (weight + more);
    return 1;
}

/* Add the curvature of the thrust's direction n(roll, pitch), times its multiplier, to the weights of roll and pitch,
 * without a change of the cost's gradient at the plan; returns 0 where there is none.
 *
 * Both second derivatives of n are -n, so the dynamics add -T (pi_v . n) to the Lagrangian's second derivative by either
 * angle, pi_v the multiplier of the velocity; inner nodes of a condensed block have none, but the thrust's own
 * stationarity gives T (pi_v . n) by its bounds' multipliers and its weight. Without this term a plan that wants more lift
 * than there is (or less: then the term is negative, and its magnitude damps) swings between the bounds of roll and pitch
 * from cycle to cycle, because the linearised dynamics promise lift from the other side. */
static int add_tilt_curvature(nmpc *self, int k, const double *x, double *W, double *y) {
    enum { THRUST = 0, ROLL = 6, PITCH = 7 };
    double values[MULTIPLIERS_MAX], u[NU];
    const double *lower = values, *upper = values + multipliers(self, k, values) + (self->has_rows[k] ? NROWS : 0);
    ocp_nlp_out_get(self->config, self->dims, self->out, k, "u", u);
    const double gain = (lower[THRUST] - upper[THRUST]) / self->in->Ts[k] - self->running[NX] * (u[THRUST] - y[NX]);
    const double more = u[THRUST] * fabs(gain);
    if (!(more > CURVATURE_MIN * self->running[ROLL])) return 0;
    for (int i = ROLL; i <= PITCH; i++) {
        const double weight = self->running[i];
        W[i * (NY + 1)] += more;
        y[i] = x[i] - weight / (weight + more) * (x[i] - y[i]);
    }
    return 1;
}

/* The cost of a node: the weights of the vehicle file and what the limits add. */
static void set_cost(nmpc *self, int k, const double *reference) {
    const double *weights = k < N ? self->running : self->terminal;
    const int rows = k < N ? NY : NX;
    double W[NY * NY] = {0}, y[NY], x[NX];
    for (int i = 0; i < rows; i++) W[i * (rows + 1)] = weights[i];
    without_yaw(reference, y);
    ocp_nlp_out_get(self->config, self->dims, self->out, k, "x", x);
    int curved = self->has_rows[k] && add_speed_curvature(self, k, x + 3, rows, W, y);
    if (k < N) curved |= add_swing_weight(self, k, W, y);
    if (k > 0 && k < N) curved |= add_tilt_curvature(self, k, x, W, y);
    if (!curved && !self->curved[k]) return;
    ocp_nlp_cost_model_set(self->config, self->dims, self->in, k, "W", W);
    ocp_nlp_cost_model_set(self->config, self->dims, self->in, k, "yref", y);
    self->curved[k] = curved;
}

/* The rows of speed, |v| linearised about the plan, and of the plane. The plane is a one-sided bound; the row's other
 * bound is FAR_M beyond the plan, because a much larger one degrades the numerical conditioning of the QP. */
static void set_rows(nmpc *self, const double *plane, const double *references) {
    const int is_plane = plane[0] != 0.0 || plane[1] != 0.0 || plane[2] != 0.0;
    const double c = is_plane ? plane[3] : -FAR_M; /* a row of zeros satisfies this with a wide margin */
    for (int k = 1; k <= N; k++) {
        if (!self->has_rows[k]) continue;
        double x[NX], C[NROWS * NX] = {0}; /* by columns */
        ocp_nlp_out_get(self->config, self->dims, self->out, k, "x", x);
        const double speed = sqrt(x[3] * x[3] + x[4] * x[4] + x[5] * x[5]);
        double along = 0.0;
        for (int i = 0; i < 3; i++) {
            C[NROWS * (i + 3)] = speed > SLOW_M_S ? x[i + 3] / speed : 0.0;
            C[NROWS * i + 1] = plane[i];
            along += plane[i] * x[i];
        }
        double low[NROWS] = {-self->speed_max, c}, high[NROWS] = {self->speed_max, fmax(c, along) + FAR_M};
        ocp_nlp_constraints_model_set(self->config, self->dims, self->in, k, "C", C);
        ocp_nlp_constraints_model_set(self->config, self->dims, self->in, k, "lg", low);
        ocp_nlp_constraints_model_set(self->config, self->dims, self->in, k, "ug", high);
    }
    for (int k = 0; k <= N; k++) set_cost(self, k, references + k * ROW);
}

/* Discard the last plan and the memory of the QP solver: the next call equals the first call of a new solver. */
void nmpc_reset(nmpc *self) {
    flight_nmpc_acados_reset(self->capsule, 1);
    self->cold = 1;
}

/* Shift the last plan by a part 0..1 of the node interval, linearly; its last values are kept. */
void nmpc_shift(nmpc *self, double part) {
    double a[NX > NU ? NX : NU], b[NX > NU ? NX : NU];
    if (self->cold) return;
    for (int k = 0; k < N; k++) {
        ocp_nlp_out_get(self->config, self->dims, self->out, k, "x", a);
        ocp_nlp_out_get(self->config, self->dims, self->out, k + 1, "x", b);
        for (int i = 0; i < NX; i++) a[i] += part * (b[i] - a[i]);
        ocp_nlp_out_set(self->config, self->dims, self->out, k, "x", a);
        if (k == N - 1) break;
        ocp_nlp_out_get(self->config, self->dims, self->out, k, "u", a);
        ocp_nlp_out_get(self->config, self->dims, self->out, k + 1, "u", b);
        for (int i = 0; i < NU; i++) a[i] += part * (b[i] - a[i]);
        ocp_nlp_out_set(self->config, self->dims, self->out, k, "u", a);
    }
}

static int qp_iterations(nmpc *self) {
    double statistics[STATISTICS_MAX] = {0};
    int iterations = 0, rows = 0, columns = 0;
    ocp_nlp_get(self->config, self->solver, "sqp_iter", &iterations);
    ocp_nlp_get(self->config, self->solver, "stat_m", &rows);
    ocp_nlp_get(self->config, self->solver, "stat_n", &columns);
    const int used = rows < iterations + 1 ? rows : iterations + 1;
    if (used < 1 || (columns + 1) * used > STATISTICS_MAX) return -1;
    ocp_nlp_get(self->config, self->solver, "statistics", statistics);
    return (int)statistics[2 * used + used - 1];
}

/* Initial guess of the QP solver. From the last multipliers it needs two iterations instead of seven, because the
 * multipliers of the slacks are far from its own first guess. Without a plan the last multipliers may belong to another
 * problem or be NaN. */
static void set_qp_start(nmpc *self, int start) {
    void *options = flight_nmpc_acados_get_nlp_opts(self->capsule);
    ocp_nlp_solver_opts_set(self->config, options, "qp_warm_start", &start);
}

/* Solve for one cycle; returns acados' status: 0 success, 1 NaN or infinite plan, others as in acados/utils/types.h. */
int nmpc_solve(nmpc *self, const double *x0, const double *references, const double *parameters, const double *plane,
               double *inputs, double *states, double *info) {
    ocp_nlp_constraints_model_set(self->config, self->dims, self->in, 0, "lbx", (void *)x0);
    ocp_nlp_constraints_model_set(self->config, self->dims, self->in, 0, "ubx", (void *)x0);
    double yaw = x0[YAW];
    for (int k = 0; k <= N; k++) {
        double y[NY], p[NP];
        without_yaw(references + k * ROW, y);
        ocp_nlp_cost_model_set(self->config, self->dims, self->in, k, "yref", y);
        const double *row = parameters + k * PARAM;
        memcpy(p, row, YAW_RATE * sizeof(double));
        p[YAW_RATE] = states[k * STATE + YAW] = yaw;
        p[YAW_RATE + 1] = row[YAW_RATE];
        flight_nmpc_acados_update_params(self->capsule, k, p, NP);
        if (k < N) yaw += self->in->Ts[k] * row[YAW_RATE];
        if (!self->cold) continue;
        ocp_nlp_out_set(self->config, self->dims, self->out, k, "x", (void *)x0);
        if (k < N) ocp_nlp_out_set(self->config, self->dims, self->out, k, "u", y + NX);
    }

    const int repeats = self->cold ? COLD_ITERATIONS : 1;
    int status = ACADOS_SUCCESS;
    info[0] = info[1] = 0.0;
    for (int i = 0; i < repeats && status == ACADOS_SUCCESS; i++) {
        double time_s = 0.0;
        set_rows(self, plane, references);
        set_qp_start(self, self->cold && i == 0 ? QP_COLD : QP_FROM_MULTIPLIERS);
        status = flight_nmpc_acados_solve(self->capsule);
        ocp_nlp_get(self->config, self->solver, "time_tot", &time_s);
        info[0] += time_s;
        info[1] += qp_iterations(self);
    }

    double sum = 0.0; /* NaN or infinite as soon as one number is */
    for (int k = 0; k <= N; k++) {
        ocp_nlp_out_get(self->config, self->dims, self->out, k, "x", states + k * STATE);
        for (int i = 0; i < STATE; i++) sum += fabs(states[k * STATE + i]);
        if (k == N) break;
        ocp_nlp_out_get(self->config, self->dims, self->out, k, "u", inputs + k * NU);
        for (int i = 0; i < NU; i++) sum += fabs(inputs[k * NU + i]);
    }
    if (status == ACADOS_SUCCESS && !isfinite(sum)) status = ACADOS_NAN_DETECTED;
    self->cold = status != ACADOS_SUCCESS ? self->cold : 0;
    return status;
}
