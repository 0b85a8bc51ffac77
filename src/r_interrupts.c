/* R tears a message apart when an interrupt arrives while it is read from a socket, even one that is suspended.
 * Held by the system it waits until the message is whole. */
#include "platform.h"
#if !defined(ELVI_NO_SIGNAL_MASK) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include "r_elvi.h"
#include <signal.h>

/* TRUE holds interrupts, FALSE lets them through; whether they were held before. One that R has taken note of but not
 * acted on is sent again, and waits like those to come. */
SEXP elvi_r_hold_interrupts(SEXP hold)
{
#ifdef ELVI_NO_SIGNAL_MASK
    (void) hold;
    return Rf_ScalarLogical(0);
#else
    sigset_t set, before;
    const int holding = Rf_asLogical(hold) == 1;
    int limited = -1;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigprocmask(holding ? SIG_BLOCK : SIG_UNBLOCK, &set, &before);
    if (holding && r_interrupted(&limited)) {
        if (limited == 1) {
            sigprocmask(SIG_SETMASK, &before, NULL);
            Rf_error("reached the limit of setTimeLimit()");
        }
        raise(SIGINT);
    }
    return Rf_ScalarLogical(sigismember(&before, SIGINT) == 1);
#endif
}
