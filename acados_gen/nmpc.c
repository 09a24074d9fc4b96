/* The generated solver behind one call per cycle.
 *
 * acados' own interface sets references, parameters and initial guesses field by field and stage by stage; from
 * Python that costs more than the solution. Here everything of a cycle goes in and comes out through flat arrays
 * that the caller allocates once:
 *
 *   x0          NX              state at the time the first input acts
 *   references  (N+1) x NY      rows x_r, u_r; of the last row only x_r counts
 *   parameters  (N+1) x NP      rows of stage parameters
 *   inputs      N x NU          the plan
 *   states      (N+1) x NX
 *   info        2               solver time [s] (acados' own timer), iterations of the QP solver
 *
 * No function here allocates after nmpc_create, and none is thread safe.
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
    NTILT = FLIGHT_NMPC_NBX,
    /* Real-time iterations from a cold start: the problem is nearly linear, the third changes nothing visible. */
    COLD_ITERATIONS = 3,
    STATISTICS_MAX = 64,
};

typedef struct {
    flight_nmpc_solver_capsule *capsule;
    ocp_nlp_config *config;
    ocp_nlp_dims *dims;
    ocp_nlp_in *in;
    ocp_nlp_out *out;
    ocp_nlp_solver *solver;
    int cold; /* no plan to start from */
} nmpc;

void nmpc_free(nmpc *self) {
    if (self == NULL) return;
    if (self->capsule != NULL) {
        if (self->solver != NULL) flight_nmpc_acados_free(self->capsule);
        flight_nmpc_acados_free_capsule(self->capsule);
    }
    free(self);
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
    return self;
}

/* sizes: N, NX, NU, NP */
void nmpc_sizes(int *sizes) {
    sizes[0] = N;
    sizes[1] = NX;
    sizes[2] = NU;
    sizes[3] = NP;
}

/* Diagonal weights of the running (NY) and the terminal cost (NX). */
void nmpc_set_weights(nmpc *self, const double *running, const double *terminal) {
    double W[NY * NY] = {0}, W_e[NX * NX] = {0};
    for (int i = 0; i < NY; i++) W[i * (NY + 1)] = running[i];
    for (int i = 0; i < NX; i++) W_e[i * (NX + 1)] = terminal[i];
    for (int k = 0; k < N; k++) ocp_nlp_cost_model_set(self->config, self->dims, self->in, k, "W", W);
    ocp_nlp_cost_model_set(self->config, self->dims, self->in, N, "W", W_e);
}

/* Hard bounds of the inputs (NU each) and the soft bound of |roll| and |pitch|. */
void nmpc_set_bounds(nmpc *self, const double *input_min, const double *input_max, double tilt_max) {
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
        ocp_nlp_constraints_model_set(self->config, self->dims, self->in, k, "lbx", low);
        ocp_nlp_constraints_model_set(self->config, self->dims, self->in, k, "ubx", high);
    }
}

/* Forget the last plan and whatever the QP solver remembers: the next call equals the first of a new solver. */
void nmpc_reset(nmpc *self) {
    flight_nmpc_acados_reset(self->capsule, 1);
    self->cold = 1;
}

/* Move the last plan forward by a part 0..1 of the node interval, linearly; its end is held. */
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

/* Solve for one cycle; returns acados' status: 0 success, 1 NaN or infinite plan, others as in acados/utils/types.h. */
int nmpc_solve(nmpc *self, const double *x0, const double *references, const double *parameters, double *inputs,
               double *states, double *info) {
    ocp_nlp_constraints_model_set(self->config, self->dims, self->in, 0, "lbx", (void *)x0);
    ocp_nlp_constraints_model_set(self->config, self->dims, self->in, 0, "ubx", (void *)x0);
    for (int k = 0; k <= N; k++) {
        ocp_nlp_cost_model_set(self->config, self->dims, self->in, k, "yref", (void *)(references + k * NY));
        flight_nmpc_acados_update_params(self->capsule, k, (double *)(parameters + k * NP), NP);
    }
    if (self->cold) {
        for (int k = 0; k <= N; k++) {
            ocp_nlp_out_set(self->config, self->dims, self->out, k, "x", (void *)x0);
            if (k < N) ocp_nlp_out_set(self->config, self->dims, self->out, k, "u", (void *)(references + k * NY + NX));
        }
    }

    const int repeats = self->cold ? COLD_ITERATIONS : 1;
    int status = ACADOS_SUCCESS;
    info[0] = info[1] = 0.0;
    for (int i = 0; i < repeats && status == ACADOS_SUCCESS; i++) {
        double time_s = 0.0;
        status = flight_nmpc_acados_solve(self->capsule);
        ocp_nlp_get(self->config, self->solver, "time_tot", &time_s);
        info[0] += time_s;
        info[1] += qp_iterations(self);
    }

    double sum = 0.0; /* NaN or infinite as soon as one number is */
    for (int k = 0; k <= N; k++) {
        ocp_nlp_out_get(self->config, self->dims, self->out, k, "x", states + k * NX);
        for (int i = 0; i < NX; i++) sum += fabs(states[k * NX + i]);
        if (k == N) break;
        ocp_nlp_out_get(self->config, self->dims, self->out, k, "u", inputs + k * NU);
        for (int i = 0; i < NU; i++) sum += fabs(inputs[k * NU + i]);
    }
    if (status == ACADOS_SUCCESS && !isfinite(sum)) status = ACADOS_NAN_DETECTED;
    self->cold = status != ACADOS_SUCCESS ? self->cold : 0;
    return status;
}
