/* The prior stack's solver behind one call per cycle; arrays as in acados_gen/nmpc.c.
 *
 * As published, every cycle starts from the states of the last solution and from hover inputs, and iterates until SQP
 * has converged or given up.
 */

#define _POSIX_C_SOURCE 200809L

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "acados/utils/types.h"
#include "acados_c/ocp_nlp_interface.h"
#include "acados_solver_flight_nmpc.h"

enum { N = FLIGHT_NMPC_N, NX = FLIGHT_NMPC_NX, NU = FLIGHT_NMPC_NU, NP = FLIGHT_NMPC_NP, NY = FLIGHT_NMPC_NY };

typedef struct {
    flight_nmpc_solver_capsule *capsule;
    ocp_nlp_config *config;
    ocp_nlp_dims *dims;
    ocp_nlp_in *in;
    ocp_nlp_out *out;
    ocp_nlp_solver *solver;
    int cold; /* no states to start from */
} paper_nmpc;

paper_nmpc *paper_create(void) {
    paper_nmpc *self = calloc(1, sizeof(paper_nmpc));
    if (self == NULL) return NULL;
    self->capsule = flight_nmpc_acados_create_capsule();
    if (self->capsule == NULL || flight_nmpc_acados_create(self->capsule) != 0) {
        free(self);
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

void paper_free(paper_nmpc *self) {
    if (self == NULL) return;
    flight_nmpc_acados_free(self->capsule);
    flight_nmpc_acados_free_capsule(self->capsule);
    free(self);
}

/* Diagonal weights: running (NY), terminal (NX). */
void paper_set_weights(paper_nmpc *self, const double *running, const double *terminal) {
    double W[NY * NY] = {0}, W_e[NX * NX] = {0};
    for (int i = 0; i < NY; i++) W[i * (NY + 1)] = running[i];
    for (int i = 0; i < NX; i++) W_e[i * (NX + 1)] = terminal[i];
    for (int k = 0; k < N; k++) ocp_nlp_cost_model_set(self->config, self->dims, self->in, k, "W", W);
    ocp_nlp_cost_model_set(self->config, self->dims, self->in, N, "W", W_e);
}

/* Hard bounds of the inputs (NU each) and of |roll|, |pitch|. */
void paper_set_bounds(paper_nmpc *self, const double *input_min, const double *input_max, double tilt_max) {
    double low[2] = {-tilt_max, -tilt_max}, high[2] = {tilt_max, tilt_max};
    for (int k = 0; k < N; k++) {
        ocp_nlp_constraints_model_set(self->config, self->dims, self->in, k, "lbu", (void *)input_min);
        ocp_nlp_constraints_model_set(self->config, self->dims, self->in, k, "ubu", (void *)input_max);
    }
    for (int k = 1; k <= N; k++) {
        ocp_nlp_constraints_model_set(self->config, self->dims, self->in, k, "lbx", low);
        ocp_nlp_constraints_model_set(self->config, self->dims, self->in, k, "ubx", high);
    }
}

/* acados' SQP prints a line whenever it gives up; standard output belongs to the program's result. */
static int solve_silently(paper_nmpc *self) {
    fflush(stdout);
    const int shown = dup(STDOUT_FILENO), nowhere = open("/dev/null", O_WRONLY);
    if (shown >= 0 && nowhere >= 0) dup2(nowhere, STDOUT_FILENO);
    const int status = flight_nmpc_acados_solve(self->capsule);
    fflush(stdout);
    if (shown >= 0 && nowhere >= 0) dup2(shown, STDOUT_FILENO);
    if (shown >= 0) close(shown);
    if (nowhere >= 0) close(nowhere);
    return status;
}

/* Returns acados' status; info: solver time [s], SQP iterations. */
int paper_solve(paper_nmpc *self, const double *x0, const double *references, const double *parameters,
                double *inputs, double *states, double *info) {
    ocp_nlp_constraints_model_set(self->config, self->dims, self->in, 0, "lbx", (void *)x0);
    ocp_nlp_constraints_model_set(self->config, self->dims, self->in, 0, "ubx", (void *)x0);
    for (int k = 0; k <= N; k++) {
        ocp_nlp_cost_model_set(self->config, self->dims, self->in, k, "yref", (void *)(references + k * NY));
        flight_nmpc_acados_update_params(self->capsule, k, (double *)(parameters + k * NP), NP);
        if (self->cold) ocp_nlp_out_set(self->config, self->dims, self->out, k, "x", (void *)x0);
        if (k < N) ocp_nlp_out_set(self->config, self->dims, self->out, k, "u", (void *)(references + k * NY + NX));
    }
    int status = solve_silently(self), iterations = 0;
    ocp_nlp_get(self->config, self->solver, "time_tot", &info[0]);
    ocp_nlp_get(self->config, self->solver, "sqp_iter", &iterations);
    info[1] = iterations;
    double sum = 0.0; /* NaN or infinite as soon as one number is */
    for (int k = 0; k <= N; k++) {
        ocp_nlp_out_get(self->config, self->dims, self->out, k, "x", states + k * NX);
        for (int i = 0; i < NX; i++) sum += fabs(states[k * NX + i]);
        if (k == N) break;
        ocp_nlp_out_get(self->config, self->dims, self->out, k, "u", inputs + k * NU);
        for (int i = 0; i < NU; i++) sum += fabs(inputs[k * NU + i]);
    }
    if (status == ACADOS_SUCCESS && !isfinite(sum)) status = ACADOS_NAN_DETECTED;
    self->cold = status != ACADOS_SUCCESS;
    if (self->cold) flight_nmpc_acados_reset(self->capsule, 1);
    return status;
}
