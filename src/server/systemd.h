/* What a service manager wants to hear. Without one, nothing happens. */
#ifndef ALEA_SERVER_SYSTEMD_H
#define ALEA_SERVER_SYSTEMD_H

/* Assignments as sd_notify(3) has them, "READY=1\nSTATUS=…". A failure is of no consequence. */
void alea__systemd_notify(const char *state);

#endif
